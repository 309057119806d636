import { describe, expect, test } from "vitest";
import { shippedSources, type Source } from "./sources.ts";
import { riddlesIn, testSources, titlesOf } from "./titles.ts";

/** Words that the source had for things that the field has a word for, with that word. */
const retired: Record<string, string> = {
  letter: "envelope, or dead letter",
  letters: "envelopes, or dead letters",
  mail: "envelope",
  desk: "endpoint",
  courier: "router",
  telling: "report",
  told: "reported",
  said: "reported",
  asked: "request",
  looked: "read",
  apart: "individually",
  scene: "scope, or harness",
  room: "slots",
  stir: "notify",
  mended: "recovered",
  most: "max",
  doomed: "dependencyFailed",
  gated: "limited",
  patience: "limit, or timeout",
  patient: "limit, or retry",
};

const ofClient = "the same thing for a program and over HTTP, of which a client knows less";

/** What two files may export under one name, each with the reason. */
const twice: Record<string, string> = {
  AgentPage: ofClient,
  AgentView: ofClient,
  EnqueueOptions: ofClient,
  Enqueued: ofClient,
  Fetch: "a throttle wraps the whole `fetch`, and a client needs only a part of it",
  RunPage: ofClient,
  RunView: ofClient,
  SendOptions: ofClient,
  Sent: ofClient,
  SessionPage: ofClient,
  StartedRun: ofClient,
  Store: "where the tables are, and in the client what React calls an external store",
  TaskPage: ofClient,
};
const maxTwice = 13;

describe("the words of the source", () => {
  const sources = shippedSources();

  test("are none that are retired, in names of files and of what they export", () => {
    expect(sources.flatMap(retiredIn)).toEqual([]);
  });

  test("are each exported from one file", () => {
    expect(exportedTwice(sources).filter((name) => !Object.hasOwn(twice, name))).toEqual([]);
  });

  test("have few exceptions, and none that isn't needed", () => {
    const found = exportedTwice(sources);
    expect(Object.keys(twice).filter((name) => !found.includes(name))).toEqual([]);
    expect(Object.keys(twice).length).toBeLessThanOrEqual(maxTwice);
  });

  test("are seen in names of every kind", () => {
    const of = (path: string, text: string) => retiredIn({ path, text });
    expect(of("src/bus/love-letter.ts", "")).toHaveLength(1);
    expect(of("src/bus/x.ts", "export const queueMost = 1;\n")).toHaveLength(1);
    expect(of("src/bus/x.ts", "export type MailBox = {};\n")).toHaveLength(1);
    expect(of("src/bus/x.ts", "export async function lookedAt() {}\n")).toHaveLength(1);
    expect(of("src/bus/mail/x.ts", "")).toHaveLength(1);
    const fields = [
      "  readonly letter: number;",
      "  letter?: number;",
      "  readonly count: { readonly born: number; letter: number };",
      "  told(count: number): void;",
      "  send(letter: string): void;",
    ];
    for (const field of fields) {
      const type = (exported: string) => `${exported}type X = {\n  a: 1;\n\n${field}\n};\n`;
      expect(of("src/bus/x.ts", type("export "))).toHaveLength(1);
      expect(of("src/bus/x.ts", type(""))).toEqual([]);
    }
    const union = "export type X =\n  | { a: 1 }\n  | { readonly letter: 2 };\nconst letter = 3;\n";
    expect(of("src/bus/x.ts", union)).toHaveLength(1);
    expect(of("src/bus/x.ts", "export type X = {\n  // letter: 1\n  a: 1;\n};\n")).toEqual([]);
    expect(of("src/dead-letters/dead-letter.ts", "export type DeadLetters = {};\n")).toEqual([]);
    expect(of("src/bus/x.ts", "export const almost = 1;\nconst most = 2;\n")).toEqual([]);
    const file = (path: string) => ({ path, text: "export type Same = {};\n" });
    expect(exportedTwice([file("src/a.ts"), file("src/b.ts")])).toEqual(["Same"]);
  });

  test("are plain in titles of tests and names of mutations, too", () => {
    const all = testSources();
    expect(all.flatMap(titlesOf).length).toBeGreaterThan(3_000);
    expect(all.flatMap(riddlesIn)).toEqual([]);
    const of = (text: string, path = "src/bus/x.test.ts") => riddlesIn({ path, text });
    // A placeholder stands for the word, so that this file has no riddle of its own.
    const plant = (text: string) => text.replace("?", ["let", "ter"].join(""));
    expect(of(plant('test("brings the ? once", () => {});'))).toHaveLength(1);
    expect(of(plant("  describe.each(kinds)(`the ? on ${kind.name}`, () => {});"))).toHaveLength(1);
    expect(of(plant('])(\n  "%s is a ?",\n  () => {},\n);'))).toHaveLength(1);
    expect(of(plant('    name: "?: any term",'), "test/mutations.ts")).toHaveLength(1);
    expect(of(plant('test("lists a dead ?", () => {});'))).toEqual([]);
    expect(of('test("sends", () => send("somebody"));')).toEqual([]);
  });
});

function retiredIn({ path, text }: Source): string[] {
  const names = [...path.replace(/\.tsx?$/, "").split("/"), ...exportsOf(text), ...fieldsOf(text)];
  return names.flatMap((name) => {
    const words = wordsOf(name);
    const found = words.filter(
      (word, at) =>
        Object.hasOwn(retired, word) &&
        !(word.startsWith("letter") && words[at - 1] === "dead") &&
        // How far a list was searched, which isn't what it has read.
        !(word === "looked" && words[at + 1] === "back"),
    );
    return found.map((word) => `${path}: ${name} (${word}: say ${retired[word]})`);
  });
}

function exportedTwice(sources: readonly Source[]): string[] {
  const files = new Map<string, number>();
  for (const { text } of sources) {
    for (const name of new Set(exportsOf(text))) files.set(name, (files.get(name) ?? 0) + 1);
  }
  return [...files].filter(([, count]) => count > 1).map(([name]) => name);
}

/** Names that are declared and exported at once; those in lists are declared elsewhere. */
function exportsOf(text: string): string[] {
  const declared =
    /^export (?:async )?(?:const|let|function\*?|type|interface|class|enum) ([\w$]+)/gm;
  return Array.from(text.matchAll(declared), ([, name]) => name!);
}

/** Fields of exported types, and parameters of their methods. */
function fieldsOf(text: string): string[] {
  const types = text
    .replaceAll(/\/\*[^]*?\*\/|\/\/.*/g, "")
    .matchAll(/^export (?:type|interface) .*(?:\n(?:[ })|&].*)?(?=\n))*/gm);
  const field = /(?<=[{;,(]\s*|^\s+)(?:readonly )?([\w$]+)\??(?=[:(])/gm;
  return Array.from(types).flatMap(([type]) =>
    Array.from(type.matchAll(field), ([, name]) => name!),
  );
}

function wordsOf(name: string): string[] {
  return name
    .split(/[-._]|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/)
    .map((word) => word.toLowerCase());
}
