// The AI SDK with its provider for OpenAI-compatible servers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, name] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "streamgauge",
  baseURL: `${baseURL}/v1`,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const call = {
  model: provider(name),
  prompt: "What is the capital of France?",
  temperature: 0,
  maxOutputTokens: 64,
  maxRetries: 0,
};
const Capital = z.object({ city: z.enum(["Paris", "Rome"]), in_europe: z.boolean() });
const tools = {
  get_weather: tool({
    description: "The weather in a city",
    inputSchema: z.object({ city: z.enum(["Paris", "Rome"]) }),
  }),
};

const cases = {
  async text() {
    const whole = await generateText(call);
    const stream = streamText(call);
    let streamed = "";
    for await (const piece of stream.textStream) streamed += piece;
    const tokens = ({ inputTokens, outputTokens }) => [inputTokens, outputTokens];
    return {
      text: whole.text,
      finish: whole.finishReason,
      usage: tokens(whole.usage),
      streamed,
      streamed_finish: await stream.finishReason,
      streamed_usage: tokens(await stream.usage),
    };
  },

  async completion() {
    const model = provider.completionModel(name);
    const whole = await generateText({ ...call, model, prompt: "The capital of France is", maxOutputTokens: 12 });
    return { text: whole.text, finish: whole.finishReason };
  },

  async object() {
    const whole = await generateText({ ...call, output: Output.object({ schema: Capital }) });
    const stream = streamText({ ...call, output: Output.object({ schema: Capital }) });
    let last;
    for await (const partial of stream.partialOutputStream) last = partial;
    return { whole: whole.output, streamed: last };
  },

  async tools() {
    const whole = await generateText({ ...call, tools, toolChoice: "required" });
    const stream = streamText({ ...call, tools, toolChoice: "required" });
    const seen = (calls) => calls.map(({ toolName, input }) => [toolName, input]);
    return { calls: seen(whole.toolCalls), streamed: seen(await stream.toolCalls), finish: whole.finishReason };
  },

  async errors() {
    const seen = {};
    await generateText({ ...call, model: provider("another") }).catch((error) => {
      seen.model = [error.name, error.statusCode, error.message];
    });
    return seen;
  },
};

const results = {};
for (const [title, run] of Object.entries(cases))
  results[title] = await run().then((value) => ({ value }), (error) => ({ error: String(error.stack) }));
console.log(JSON.stringify(results));
