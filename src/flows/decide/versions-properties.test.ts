import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { deathLimit } from "../../base/death-limit.ts";
import { flow } from "../flow.ts";
import { atEnd, fold } from "./run.ts";
import type { Machine } from "../machine.ts";
import { play } from "../contract/simulated-run.ts";
import { openRun, toColumns } from "../drive/load.ts";

/** What a later version did with a transition or finalizer, and whether it put another before it. */
type Edit = { readonly what: "keep" | "rename" | "remove"; readonly added: boolean };

const anyEdit: fc.Arbitrary<Edit> = fc.record({
  what: fc.constantFrom("keep", "keep", "rename", "remove"),
  added: fc.boolean(),
});
const anyKind = fc.constantFrom("work", "sleep", "signal", "children");
const anyParts = fc.array(fc.record({ kind: anyKind, edit: anyEdit }), {
  minLength: 1,
  maxLength: 5,
});
const anyFinalizers = fc.array(anyEdit, { maxLength: 3 });
const anyChances = fc.array(fc.nat(1_000_000), { maxLength: 40 });

type Parts = readonly { readonly kind: string; readonly edit: Edit }[];

function added(chain: any, kind: string, name: string): any {
  if (kind === "sleep") return chain.sleep(name, 50);
  if (kind === "signal") return chain.signal(name);
  if (kind === "children") return chain.children(name, () => []);
  return chain.to(name, () => {});
}

function earlier(parts: Parts, finalizers: readonly Edit[]): Machine {
  let chain: any = flow("f", { version: 1, attempts: 3, backoff: { baseMs: 10 } });
  parts.forEach(({ kind }, at) => (chain = added(chain, kind, `t${at}`)));
  finalizers.forEach((_, at) => (chain = chain.finally(`f${at}`, () => {})));
  return chain.end() as Machine;
}

const nameOf = (prefix: string, at: number, { what }: Edit) =>
  what === "rename" ? `new-${prefix}${at}` : `${prefix}${at}`;

/** Removed ones lead to what was behind them then, whatever has become of that. */
function later(parts: Parts, finalizers: readonly Edit[]): Machine {
  const removed: Record<string, string> = {};
  const renamed: Record<string, string> = {};
  const declare = (prefix: string, edits: readonly Edit[]) =>
    edits.forEach((edit, at) => {
      const old = `${prefix}${at}`;
      const following = at + 1 < edits.length ? `${prefix}${at + 1}` : "end";
      if (edit.what === "remove") removed[old] = following;
      if (edit.what === "rename") renamed[old] = nameOf(prefix, at, edit);
    });
  const edits = parts.map(({ edit }) => edit);
  declare("t", edits);
  declare("f", finalizers);
  const options = { version: 2, attempts: 3, backoff: { baseMs: 10 }, removed, renamed };
  let chain: any = flow("f", options);
  parts.forEach(({ kind, edit }, at) => {
    if (edit.added) chain = chain.to(`extra-t${at}`, () => {});
    if (edit.what !== "remove") chain = added(chain, kind, nameOf("t", at, edit));
  });
  // A flow has at least one.
  chain = chain.to("last", () => {});
  finalizers.forEach((edit, at) => {
    if (edit.added) chain = chain.finally(`extra-f${at}`, () => {});
    if (edit.what !== "remove") chain = chain.finally(nameOf("f", at, edit), () => {});
  });
  return chain.end() as Machine;
}

describe("a run that a later version goes on with, wherever it stood", () => {
  const anything = fc.record({
    parts: anyParts,
    finalizers: anyFinalizers,
    before: anyChances,
    /** How far the earlier version got, and then the later one. */
    far: fc.nat(12),
    farther: fc.nat(5),
    after: anyChances,
  });

  test("ends, runs nothing again that was done, and has a history that folds to what is stored", () => {
    fc.assert(
      fc.property(anything, ({ parts, finalizers, far, before, after }) => {
        const [one, two] = [earlier(parts, finalizers), later(parts, finalizers)];
        const first = play(one, before, { maxDecisions: far });
        const second = play(two, after, first);
        expect(second.row.cursor).toBeNull();
        expect(toColumns(fold(second.events))).toEqual(second.row);
        const done = first.events.flatMap((event) =>
          event.type === "complete" ? [two.renamed[event.transition] ?? event.transition] : [],
        );
        expect(second.calls.filter((name) => done.includes(name))).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  test("does all that the later version has from there on, in its order", () => {
    fc.assert(
      fc.property(anything, ({ parts, finalizers, far, before }) => {
        const [one, two] = [earlier(parts, finalizers), later(parts, finalizers)];
        const first = play(one, before, { maxDecisions: far });
        const read = openRun(two, first.row);
        if (read.type !== "open") throw new Error(`it is ${read.type}`);
        const { cursor, intent } = read.run;
        const second = play(two, [], first);
        const names = [...two.parts, ...two.finalizers].map(({ name }) => name);
        const from = cursor === atEnd && intent === null ? two.finalizers[0]?.name : cursor;
        const expected = from && names.includes(from) ? names.slice(names.indexOf(from)) : [];
        const done = second.events.slice(first.events.length).flatMap((event) => {
          return event.type === "complete" && event.transition !== atEnd ? [event.transition] : [];
        });
        // Nothing goes wrong any more, unless too many pods had died under it before.
        fc.pre(read.run.deaths < deathLimit);
        expect(done).toEqual(expected);
      }),
      { numRuns: 500 },
    );
  });

  test("is refused by the earlier one once the later one has advanced it", () => {
    fc.assert(
      fc.property(anything, ({ parts, finalizers, far, farther, before, after }) => {
        const [one, two] = [earlier(parts, finalizers), later(parts, finalizers)];
        const first = play(one, before, { maxDecisions: far });
        const second = play(two, after, { ...first, maxDecisions: farther });
        const advanced = second.row.version === 2;
        const moved = second.row.cursor !== first.row.cursor;
        expect(moved && !advanced).toBe(false);
        expect(openRun(one, second.row).type === "refuse").toBe(advanced);
      }),
      { numRuns: 500 },
    );
  });
});
