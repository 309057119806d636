import type { Clock } from "../../base/clock.ts";
import type { Person } from "../../protocol/frames.ts";
import { oneLine } from "../output.ts";

// More would push what is said off the screen.
const maxNames = 5;
const maxNameChars = 40;
const writingEveryMs = 10_000;

export type PeopleLines = ReturnType<typeof createPeopleLines>;

/**
 * Who has the session open, as lines of a terminal: one when that changes, and one when users begin to write,
 * every ten seconds at most. The reader is among them, so nothing is said of one alone.
 */
export function createPeopleLines(clock: Pick<Clock, "monotonic">) {
  let here = "";
  let hadCompany = false;
  let writing = "";
  let writingMs = -Infinity;
  return {
    /** What is new since the last call. */
    take(people: readonly Person[]): string[] {
      const lines: string[] = [];
      const now = names(people);
      const hasCompany = people.length > 1;
      if (now !== here && (hasCompany || hadCompany)) lines.push(`(here: ${now})`);
      [here, hadCompany] = [now, hasCompany];
      const writers = names(people.filter(({ typing }) => typing));
      const isNew = writers !== "" && writers !== writing;
      if (isNew && clock.monotonic() - writingMs >= writingEveryMs) {
        writingMs = clock.monotonic();
        lines.push(`(${writers} writing…)`);
      }
      writing = writers;
      return lines;
    },
  };
}

function names(people: readonly Person[]): string {
  const all = people.map(({ user }) => user).toSorted();
  const some = all.slice(0, maxNames).map((each) => oneLine(each, maxNameChars));
  const more = all.length - some.length;
  return some.join(", ") + (more > 0 ? ` and ${more} more` : "");
}
