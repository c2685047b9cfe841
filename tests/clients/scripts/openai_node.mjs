// The openai package for Node.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
const QUESTION = "What is the capital of France?";
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: "none", maxRetries: 0, timeout: 60_000 });
const chatFields = { model, messages: [{ role: "user", content: QUESTION }], temperature: 0, max_tokens: 64 };
const responseFields = { model, input: QUESTION, temperature: 0, max_output_tokens: 64 };
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather in a city", parameters } }];
const Capital = z.object({ city: z.enum(["Paris", "Rome"]), in_europe: z.boolean() });

const cases = {
  async chat() {
    const whole = await client.chat.completions.create(chatFields);
    const stream = await client.chat.completions.create({
      ...chatFields,
      stream: true,
      stream_options: { include_usage: true },
    });
    let streamed = "";
    let last, usage;
    for await (const chunk of stream) {
      streamed += chunk.choices[0]?.delta.content ?? "";
      last = chunk.choices[0]?.finish_reason ?? last;
      usage = chunk.usage ?? usage;
    }
    return {
      text: whole.choices[0].message.content,
      finish: whole.choices[0].finish_reason,
      usage: whole.usage,
      streamed,
      streamed_finish: last,
      streamed_usage: usage,
    };
  },

  async stream_helper() {
    const stream = client.chat.completions.stream({ ...chatFields, n: 2 });
    const final = await stream.finalChatCompletion();
    return { texts: final.choices.map((c) => c.message.content), finish: final.choices.map((c) => c.finish_reason) };
  },

  async parse() {
    const answer = await client.chat.completions.parse({
      ...chatFields,
      response_format: zodResponseFormat(Capital, "capital"),
    });
    return answer.choices[0].message.parsed;
  },

  async tools() {
    const whole = await client.chat.completions.create({ ...chatFields, tools, tool_choice: "required" });
    const stream = client.chat.completions.stream({ ...chatFields, tools, tool_choice: "required" });
    const final = await stream.finalChatCompletion();
    const seen = (choice) => choice.message.tool_calls.map((c) => [!!c.id, c.function.name, c.function.arguments]);
    return { calls: seen(whole.choices[0]), streamed: seen(final.choices[0]), finish: final.choices[0].finish_reason };
  },

  async completion() {
    const fields = { model, prompt: "The capital of France is", temperature: 0, max_tokens: 12 };
    const whole = await client.completions.create(fields);
    let streamed = "";
    for await (const chunk of await client.completions.create({ ...fields, stream: true }))
      streamed += chunk.choices[0].text;
    return { text: whole.choices[0].text, streamed };
  },

  async response() {
    const whole = await client.responses.create(responseFields);
    const stored = await client.responses.retrieve(whole.id);
    const stream = client.responses.stream(responseFields);
    const types = [];
    for await (const event of stream) types.push(event.type);
    const final = await stream.finalResponse();
    return { text: whole.output_text, stored: stored.output_text, streamed: final.output_text, types };
  },

  async models() {
    const ids = [];
    for await (const card of client.models.list()) ids.push(card.id);
    return ids;
  },

  async errors() {
    const seen = {};
    for (const [name, fields] of Object.entries({ model: { model: "another" }, temperature: { temperature: 3 } }))
      await client.chat.completions.create({ ...chatFields, ...fields }).catch((error) => {
        seen[name] = [error.constructor.name, error.status, error.code, error.param, !!error.requestID];
      });
    return seen;
  },

  async aborted() {
    const stream = await client.chat.completions.create({ ...chatFields, max_tokens: 1000, stream: true });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 2) break; // leaving the loop closes the connection
    return { chunks, aborted: stream.controller.signal.aborted };
  },
};

const results = {};
for (const [name, run] of Object.entries(cases))
  results[name] = await run().then((value) => ({ value }), (error) => ({ error: String(error.stack) }));
console.log(JSON.stringify(results));
