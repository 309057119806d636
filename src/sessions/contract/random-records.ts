import { between, fraction, type Random } from "../../base/random.ts";
import type { EndedStep } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import type { LogRecord } from "../log/journal.ts";
import { entry, header, record, startedTask, turn } from "./journal-harness.ts";
import { endedTurn } from "./records.ts";

const users = ["ada", "bob", "eve"];
const taskKeys = ["once", "twice"];
const stepKeys = ["a", "a/b", "a/b/c", "loop", "loop@1/model", "other"];

/**
 * Records that an owner could have decided, over a few sessions: messages, turns with checkpoints and steps,
 * answers, users that come and go, metadata, reads, tasks that start with messages, deletions.
 */
export function randomRecords(random: Random, sessionIds: readonly string[]): () => LogRecord {
  const headers = new Map<string, Header>();
  let seqs = 0;
  const chance = (likely: number) => fraction(random) < likely;
  const oneOf = <Item>(all: readonly Item[]): Item => all[between(random, 0, all.length - 1)]!;

  const step = (): EndedStep => {
    const key = oneOf(stepKeys);
    const value = JSON.stringify(`${key} ${++seqs}`);
    const forgets = key === "a" || key === "loop";
    return { key, seq: seqs, kind: "done", inputHash: null, value, tookMs: 1, forgets };
  };

  const changesOf = (sessionId: string): Partial<LogRecord> => {
    const before = headers.get(sessionId) ?? header(sessionId, { tenant: "acme" });
    if (before.status === "deleted") return {};
    const { lastSeq, epoch, work } = before;
    const isNew = !headers.has(sessionId);
    const next = (facts: Partial<Header>, more: Partial<LogRecord> = {}): Partial<LogRecord> => {
      const after = { ...before, ...facts, activeAtMs: before.activeAtMs + 1 };
      headers.set(sessionId, after);
      return { headers: [after], members: isNew ? [sessionId] : [], ...more };
    };
    const ref = { sessionId, epoch };
    if (work?.type === "turn" && chance(0.6)) {
      const { attempt } = work;
      if (chance(0.4)) {
        const body = `${sessionId} ${++seqs}`;
        return { checkpoints: [{ ...ref, attempt, body }], members: [] };
      }
      if (chance(0.4)) {
        const rows = Array.from({ length: between(random, 1, 3) }, step);
        const hasSteps = work.hasSteps === true;
        const steps = [{ ...ref, attempt, rows }];
        if (hasSteps) return { steps, members: [] };
        return next({ work: { ...work, hasSteps: true } }, { steps });
      }
      const ended = endedTurn(sessionId, { epoch, attempt, endedAtMs: lastSeq });
      if (chance(0.3)) {
        const again = { ...work, attempt: attempt + 1 };
        return next({ work: again }, { turns: [{ ...ended, outcome: "lost" as const }] });
      }
      const reply = entry(sessionId, lastSeq + 1, { role: "assistant", clientId: null, epoch });
      return next(
        { lastSeq: lastSeq + 1, work: null },
        { entries: [reply], turns: [ended], stepsOver: work.hasSteps ? [ref] : [] },
      );
    }
    if (!isNew && chance(0.02)) {
      const over = work?.type === "turn" && work.hasSteps ? [ref] : [];
      return next({ status: "deleted", work: null }, { stepsOver: over });
    }
    if (!isNew && chance(0.15)) {
      const some = users.filter(() => chance(0.5));
      return next({ users: some }, { members: [sessionId] });
    }
    if (!isNew && chance(0.2)) {
      const read = { sessionId, user: oneOf(users), seq: between(random, 0, lastSeq) };
      return { reads: [read], members: [] };
    }
    if (!isNew && chance(0.15)) {
      return next({}, { metadata: [{ sessionId, metadata: `{"at":${++seqs}}` }] });
    }
    const count = between(random, 1, 3);
    const entries = Array.from({ length: count }, (_, at) => entry(sessionId, lastSeq + 1 + at));
    const begun = work ?? (chance(0.5) ? turn({ epoch: epoch + 1 }) : null);
    const sum = { lastSeq: lastSeq + count, work: begun, epoch: begun ? begun.epoch : epoch };
    if (!chance(0.3)) return next(sum, { entries });
    const tasks = Array.from({ length: between(random, 1, 2) }, () => {
      const key = chance(0.5) ? oneOf(taskKeys) : null;
      return startedTask(sessionId, `task-${++seqs}`, { key });
    });
    const [first, second] = tasks;
    if (second && chance(0.5)) tasks[1] = { ...second, after: [first!.taskId], depends: 2 };
    return next(sum, { entries, tasks });
  };

  return () => {
    const chosen = sessionIds.filter(() => chance(0.5));
    const parts = (chosen.length === 0 ? [oneOf(sessionIds)] : chosen).map(changesOf);
    const all = <Member extends keyof LogRecord>(member: Member) =>
      parts.flatMap((part) => (part[member] ?? []) as readonly unknown[]) as never;
    return record({
      entries: all("entries"),
      headers: all("headers"),
      members: all("members"),
      metadata: all("metadata"),
      reads: all("reads"),
      checkpoints: all("checkpoints"),
      steps: all("steps"),
      stepsOver: all("stepsOver"),
      turns: all("turns"),
      acts: [],
      tasks: all("tasks"),
    });
  };
}
