// How often the openai package for Node tries when the server is full.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const statuses = [];
const counting = async (...call) => {
  const answer = await fetch(...call);
  statuses.push(answer.status);
  return answer;
};
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: "none", maxRetries: 8, timeout: 60_000, fetch: counting });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const answer = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 8 });
console.log(JSON.stringify({ retried: { value: { statuses, text: answer.choices[0].message.content } } }));
