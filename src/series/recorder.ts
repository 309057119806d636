import { addPods, type Counts, newTally, type Tally } from "./counts.ts";
import {
  maxSubjects,
  type SubjectKind,
  subjectKinds,
  subjectText,
} from "../protocol/series-subject.ts";

export type Recorder = ReturnType<typeof createRecorder>;

/** The kinds whose subjects add up to something. */
const summedKinds: ReadonlySet<SubjectKind> = new Set(["task", "flow", "agent", "pod"]);

/**
 * Counts in memory, by subject, until they are taken. A tally is found by maps alone, so that counting a
 * task costs no text and no object.
 */
export function createRecorder({ most = maxSubjects }: { most?: number } = {}) {
  const kinds = {} as Record<SubjectKind, Map<string, Map<string, Tally>>>;
  for (const kind of subjectKinds) kinds[kind] = new Map();
  let others = new Map<SubjectKind, Tally>();
  let size = 0;
  /** What was counted last, which is often what comes next. */
  let last: { kind: SubjectKind; name: string; part: string; tally: Tally } | undefined;

  const other = (kind: SubjectKind): Tally => {
    let tally = others.get(kind);
    if (tally === undefined) others.set(kind, (tally = newTally()));
    return tally;
  };

  return {
    /** What is counted of a subject since the last `take`. */
    tally(kind: SubjectKind, name: string, part = ""): Tally {
      if (last?.kind === kind && last.name === name && last.part === part) return last.tally;
      const found = kinds[kind].get(name)?.get(part);
      if (found !== undefined) {
        last = { kind, name, part, tally: found };
        return found;
      }
      if (size >= most) return other(kind);
      size++;
      const tally = newTally();
      const byPart = kinds[kind].get(name);
      if (byPart === undefined) kinds[kind].set(name, new Map([[part, tally]]));
      else byPart.set(part, tally);
      return tally;
    },
    /** True if nothing was counted. */
    get isEmpty() {
      return size === 0 && others.size === 0;
    },
    /** Everything that was counted since the last call, and the sum of each kind. */
    take(): Map<string, Counts> {
      const taken = new Map<string, Counts>();
      for (const kind of subjectKinds) {
        const summed: Counts[] = [];
        for (const [name, byPart] of kinds[kind]) {
          for (const [part, tally] of byPart) {
            taken.set(subjectText({ kind, name, part }), tally);
            // The transitions of a run are parts of it, and are not counted beside it.
            if (kind !== "flow" || part === "") summed.push(tally);
          }
        }
        const rest = others.get(kind);
        if (rest !== undefined) {
          taken.set(subjectText({ kind, isOther: true }), rest);
          if (kind !== "flow") summed.push(rest);
        }
        if (summed.length > 0 && summedKinds.has(kind)) {
          taken.set(subjectText({ kind }), summed.reduce(addPods));
        }
        kinds[kind] = new Map();
      }
      others = new Map();
      size = 0;
      last = undefined;
      return taken;
    },
  };
}
