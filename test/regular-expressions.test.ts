import { describe, expect, test } from "vitest";
import { blocksOf } from "../examples/chat/src/lib/prose.ts";
import { withoutQuotations } from "../src/dead-letters/fingerprint.ts";
import { parsePartialJson } from "../src/protocol/assembler/partial-json.ts";
import { readLimitHeaders } from "../src/throttles/rate-headers.ts";
import { type Literal, literals, worstOf } from "./expressions.ts";
import { stepsMost, stepsPerCharacter } from "./linear.ts";

/** As much text as comes from outside in one piece: a chunk of an answer, a message, a payload. */
const charactersMost = 1024 * 1024;
/** Each enough to tell, so that what isn't linear fails before it takes minutes. */
const lengths = [2 * 1024, 8 * 1024, 32 * 1024, charactersMost];

/** Those that aren't linear by themselves, and why they need not be. */
const guarded: Readonly<Record<string, string>> = {
  [String.raw`src/server/pages.ts /^assets\/(?:.*\/)?[^/]+-(?=[\w-]*[A-Z0-9])[\w-]{8}\.\w+(?:\.map)?$/`]:
    "reads names of files in a folder that the config names",
  [String.raw`src/store/open.ts /\/\/.*@/`]: "reads the store's own address",
  [String.raw`src/store/open.ts /\?.*$/`]: "reads the store's own address",
};

const isFree = ({ path, literal }: Literal) => guarded[`${path} ${literal}`] === undefined;

describe("every regular expression of src and of the chat", () => {
  test.each(literals().filter(isFree))(
    "takes no longer than its text is long: $literal in $path",
    (each) => {
      const { regex } = each;
      const run = (text: string) =>
        regex.global ? text.replaceAll(regex, "") : ((regex.lastIndex = 0), regex.test(text));
      const [worst, next] = worstOf(regex, run);
      for (const text of [...lengths.map(worst), next(lengths[2]!)]) {
        const steps = stepsPerCharacter(run, text);
        expect({ steps, text: text.slice(0, 40) }).toSatisfy(() => steps < stepsMost);
      }
    },
  );
});

describe("what reads text from outside takes no longer than the text is long", () => {
  const run = (text: string, length: number) => text.repeat(Math.floor(length / text.length));
  test.each<[string, (text: string) => unknown, (length: number) => string]>([
    ["a tool's input", parsePartialJson, (length) => `1${run("e", length)}1`],
    ["a tool's input", parsePartialJson, (length) => `[${run("1e,", length)}`],
    ["a tool's input", parsePartialJson, (length) => `{"a":"${run("\\u", length)}`],
    ["a tool's input", parsePartialJson, (length) => run("[", length)],
    ["a message in the chat", blocksOf, (length) => `a${run("\n", length)}a`],
    ["a message in the chat", blocksOf, (length) => `\`\`\`${run(" ", length)}!`],
    ["a message in the chat", blocksOf, (length) => `\`\`\`a${run(" ", length)}!`],
    ["a message in the chat", blocksOf, (length) => run("`", length)],
    ["a message in the chat", blocksOf, (length) => `https://${run(".", length)}`],
    ["a downstream's header", limits, (length) => `${run("1", length)}x`],
    ["a downstream's header", limits, (length) => run("1m", length)],
    ["an error's message", withoutQuotations, (length) => run("“", length)],
    ["an error's message", withoutQuotations, (length) => run("«'", length)],
  ])("%s", (_, read, text) => {
    for (const length of lengths) {
      expect(stepsPerCharacter(read, text(length))).toBeLessThan(stepsMost);
    }
  });

  function limits(text: string): unknown {
    return readLimitHeaders({ "retry-after": text, ratelimit: text }, 0);
  }
});
