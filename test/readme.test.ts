import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, expect, test } from "vitest";
import { built } from "./built.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "flotilla-readme-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What stands in for the reader's own code. */
const standIns = `
async function* answerTo(messages, signal) {
  yield "you said ";
  yield messages.at(-1).parts[0].text;
}
function show(event) {
  if (event.type !== "entry") return;
  console.log(event.entry.seq, textOf(event.entry));
  process.exit(0);
}
`;

test("the first page's code for sessions does what it says", async () => {
  const page = readFileSync(join(root, "README.md"), "utf8");
  const [, code] = /## Sessions\n[^]*?```ts\n([^]*?)```/.exec(page)!;
  const source = pathToFileURL(built.index).href;
  const program = join(folder, "readme.mjs");
  writeFileSync(program, code!.replace(`from "flotilla"`, `from "${source}"`) + standIns);
  const child = spawn(process.execPath, [program], { cwd: folder });
  let output = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (output += chunk));
  await new Promise((resolve) => child.on("close", resolve));
  const said = output.split("\n").filter((line) => !line.startsWith("{"));
  expect(said.join("\n")).toBe("you said hello\n2 you said hello\n");
});
