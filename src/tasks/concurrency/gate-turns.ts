import { between, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { firstRound, type LimitOf, readTries, servedLast, usualKeyLimit } from "./candidates.ts";
import type { ClaimCall } from "../sql/claim.ts";
import { type Candidate, passGates } from "../sql/concurrency.ts";

export type { LimitOf };

/** The part of a claim that goes through the gates. */
export type GatePass = {
  readonly statements: ReturnType<typeof passGates>["statements"];
  /** Takes its answers, and remembers whose turn is next. */
  learn(tables: readonly Row[][]): Passed;
};

export type Passed = {
  readonly rows: readonly Row[];
  readonly ids: ReadonlySet<string>;
  /** Whether anything went through the gates or was set aside, so that others may be in front now. */
  readonly moved: boolean;
};

export type GateTurnsParts = {
  database: Database;
  random: Random;
  limitOf?: LimitOf;
};

const lowest = -100;
const highest = 100;
// Every sixteenth look begins anywhere in the order of priorities, so that low ones move too.
const anywhereEvery = 16;
const marksKept = 16;

/** Decides what a claim tries behind the gates, and how much of it is left for what is behind none. */
export function createGateTurns(parts: GateTurnsParts) {
  const { database, random, limitOf = () => undefined } = parts;
  let round = firstRound;
  let wide = false;
  let plainWaits = false;
  let looks = 0;
  /** Tasks that must run alone and were marked for this pod. */
  const marked = new Map<string, Row>();

  const passOf = (call: ClaimCall, candidates: readonly Candidate[], alone: boolean): GatePass => {
    const { statements, claimedAt, blockedAt } = passGates(call, candidates, { alone });
    return {
      statements,
      learn(tables) {
        const rows = tables[claimedAt]!;
        const blocked = blockedAt === undefined ? 0 : tables[blockedAt]!.length;
        const ids = new Set(rows.map((row) => row["task_id"] as string));
        const after = servedLast(candidates, ids);
        if (after !== undefined && !alone) round = { ...round, after };
        wide = blocked > 0;
        return { rows, ids, moved: rows.length + blocked > 0 };
      },
    };
  };

  return {
    /** What is ready behind the gates, as part of a claim; undefined where there is nothing to try. */
    async pass(call: ClaimCall): Promise<GatePass | undefined> {
      looks++;
      // Where others wait behind no gate, half of what this pod has free is theirs.
      const turn = looks % 2;
      const most = plainWaits ? Math.floor((call.limit + turn) / 2) : call.limit;
      if (most === 0) return undefined;
      const anywhere = looks % anywhereEvery === 0;
      const tries = await readTries(database, {
        names: call.names,
        flows: call.flows,
        most: call.most,
        together: call.together,
        held: call.held ?? [],
        round,
        limit: most,
        fromPriority: anywhere ? between(random, lowest, highest) : highest,
        limitOf,
        wide,
      });
      ({ round } = tries);
      if (tries.candidates.length === 0) return undefined;
      return passOf({ ...call, limit: most }, tries.candidates, false);
    },
    /** The task that this pod has emptied itself for, if that is behind a gate. */
    passAlone(call: ClaimCall, taskId: string): GatePass | undefined {
      const row = marked.get(taskId);
      if (row === undefined || !call.names.includes(row["name"])) return undefined;
      const { tenant, group_key: group } = row;
      const groupLimit = limitOf(row["name"]) ?? usualKeyLimit;
      return passOf(call, [{ taskId, tenant, group, groupLimit }], true);
    },
    /** Remembers the gate of a task that was marked for this pod. */
    meant(row: Row | undefined): void {
      if (row === undefined || Number(row["gated"]) !== 1) return;
      if (marked.size >= marksKept) marked.clear();
      marked.set(row["task_id"], row);
    },
    /** Whether there is a backlog behind no gate. */
    plainCame(full: boolean): void {
      plainWaits = full;
    },
  };
}
