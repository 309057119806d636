import { type Act, type ActParts, type ActWrite, type ActWritten, beginAct } from "../audit/act.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import {
  type GroupStanding,
  type GroupState,
  groupStates,
  standingOf,
  type StoredGroup,
  toStoredGroup,
} from "./groups.ts";
import type { DeadLetterIndex, IndexedGroup } from "./index.ts";
import { checkSelection } from "./redrive.ts";
import { changeGroup, closedGroups, getGroups, maxGroups } from "./sql.ts";

export type GroupsOptions = {
  name?: string;
  /** Only failed tasks of this tenant. */
  tenant?: string;
  /** Only groups in this state. Default: all that aren't ignored. */
  state?: GroupState;
  /** 1 to 1,000. Default 50. */
  limit?: number;
  /** Called with the number of failed tasks read so far, if they have to be read first. */
  onProgress?: (tasks: number) => void;
};

/** A group of failed tasks with the same error. */
export type ErrorGroup = IndexedGroup &
  GroupStanding & {
    /** How many of its tasks failed in each of the last 24 hours by the clock, the present one last. */
    readonly trend: readonly number[];
  };

/** The largest groups, and the total number of groups and tasks. */
export type ErrorGroups = {
  readonly groups: readonly ErrorGroup[];
  readonly count: number;
  readonly tasks: number;
  /** The groups that are ignored, and their tasks. */
  readonly ignored: { readonly groups: number; readonly tasks: number };
};

/** A group after an act on it. */
export type ChangedGroup = GroupStanding & { readonly group: string };

export type IgnoreOptions = {
  /** Until when, in milliseconds since 1970. Default: until a task of the group fails. */
  untilMs?: number;
};

/** Failed tasks by their errors. */
export type ErrorGroupCalls = {
  /** Failed tasks grouped by their errors, the largest group first. */
  groups(options?: GroupsOptions): Promise<ErrorGroups>;
  /** Says that the error of a group is fixed. It is open again when a task of it fails. */
  resolve(group: string): Promise<ChangedGroup>;
  /** Leaves a group out of lists, until a task of it fails or until a time. */
  ignore(group: string, options?: IgnoreOptions): Promise<ChangedGroup>;
  /** Takes back that a group was resolved or ignored. */
  reopen(group: string): Promise<ChangedGroup>;
};

export type ErrorGroupParts = Pick<ActParts, "database" | "clock" | "ids" | "log"> & {
  /** The index of failed tasks, in sync with the store. */
  readIndex: (onProgress?: (tasks: number) => void) => Promise<{ readonly index: DeadLetterIndex }>;
  /** Writes an act until its outcome is known. */
  write: (act: Act, statements: ActWrite["statements"]) => Promise<ActWritten>;
};

const hourMs = 3_600_000;
const timeRange = { min: 0, max: 8.64e15 };

export function createErrorGroups(parts: ErrorGroupParts): ErrorGroupCalls {
  const { database, clock, readIndex, write } = parts;

  const storedGroups = async (groups: readonly string[]): Promise<Map<string, StoredGroup>> => {
    if (groups.length === 0) return new Map();
    const rows = (await database.read(getGroups(groups))).map(toStoredGroup);
    return new Map(rows.map((row) => [row.group, row]));
  };

  const change = async (
    action: "failures.resolve" | "failures.ignore" | "failures.reopen",
    given: string,
    to: { readonly state: GroupState; readonly untilMs: number | null },
  ): Promise<ChangedGroup> => {
    const group = checkSelection({ group: given }).group!;
    const act = await beginAct(parts, { action, subject: group });
    const { index } = await readIndex();
    const times = index.times(group);
    if (!times && !(await storedGroups([group])).has(group))
      throw new FlotillaError("not_found", `no failed task is in group ${group}: list the groups`);
    const seen = { group, ...(times ?? { firstAtMs: 0, lastAtMs: 0 }) };
    const { tables } = await write(act, (_, entry) => changeGroup({ ...seen, ...to }, entry));
    const [row] = tables.at(-1)!;
    if (!row) {
      throw new FlotillaError(
        "overloaded",
        `${maxGroups} groups are stored already, and this one isn't: discard failed tasks, and wait`,
      );
    }
    const stored = toStoredGroup(row);
    const standing = standingOf(stored, { group, firstAtMs: stored.firstAtMs }, () => undefined);
    return { group, ...standing };
  };

  return {
    async groups(options = {}) {
      checkOptions("groups", options, ["name", "tenant", "state", "limit", "onProgress"]);
      const { limit = 50, state, tenant, onProgress } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (state !== undefined) checkChoice("state", state, groupStates);
      const rows = (await database.read(closedGroups())).map(toStoredGroup);
      const closed = new Map(rows.map((row) => [row.group, row]));
      const { index } = await readIndex(onProgress);
      // The index is read without waiting in between, because it is closed when its pod leads no longer.
      const standings = new Map(
        rows.map((row) => [row.group, standingIn(index, row, row, tenant)] as const),
      );
      const filter = filterOf(options);
      const found = index.groups({ limit, ...filter, ...stateFilter(state, standings) });
      const ignored = index.groups({ limit: 1, ...filter, only: inState("ignored", standings) });
      const ids = found.groups.map(({ group }) => group);
      const endMs = Math.floor(clock.now() / hourMs) * hourMs + hourMs;
      const trends = index.trends(ids, { endMs, ...(tenant !== undefined && { tenant }) });
      const listed = found.groups.map((each) => {
        const row = closed.get(each.group);
        const trend = trends.get(each.group)!;
        return { ...each, trend, standing: row && standingIn(index, row, each, tenant) };
      });
      const stored = await storedGroups(ids);
      const groups = listed.map(({ standing, ...each }) => ({
        ...each,
        ...(standing ?? standingIn(undefined, stored.get(each.group), each, tenant)),
      }));
      return {
        // There is no next page: `count` is the total, and the largest groups come first.
        groups: fitPage(groups, false).items,
        count: found.count,
        tasks: found.tasks,
        ignored: { groups: ignored.count, tasks: ignored.tasks },
      };
    },

    resolve: (group) => change("failures.resolve", group, { state: "resolved", untilMs: null }),

    async ignore(group, options = {}) {
      checkOptions("ignore", options, ["untilMs"]);
      const { untilMs = null } = options;
      if (untilMs !== null) checkNumber("untilMs", untilMs, timeRange);
      if (untilMs !== null && untilMs <= clock.now())
        throw new FlotillaError("invalid_option", "untilMs must be in the future");
      return change("failures.ignore", group, { state: "ignored", untilMs });
    },

    reopen: (group) => change("failures.reopen", group, { state: "open", untilMs: null }),
  };
}

/** How a group stands. To a caller of one tenant it stands as that tenant's own failures say. */
function standingIn(
  index: DeadLetterIndex | undefined,
  stored: StoredGroup | undefined,
  seen: { readonly group: string; readonly firstAtMs: number },
  tenant: string | undefined,
): GroupStanding {
  const firstAfter = (group: string, afterMs: number) => index?.firstAfter(group, afterMs, tenant);
  if (tenant === undefined || !stored) return standingOf(stored, seen, firstAfter);
  // When others have failed, the store alone knows.
  const stateAtMs = stored.state === "open" ? null : stored.stateAtMs;
  const own = { ...stored, stateAtMs, firstAtMs: seen.firstAtMs, cameBackAtMs: null };
  return standingOf(own, seen, firstAfter);
}

type Standings = ReadonlyMap<string, GroupStanding>;

function stateFilter(
  state: GroupState | undefined,
  standings: Standings,
): { only?: readonly string[]; without?: readonly string[] } {
  switch (state) {
    case undefined:
      return { without: inState("ignored", standings) };
    case "open":
      return { without: [...inState("resolved", standings), ...inState("ignored", standings)] };
    case "resolved":
    case "ignored":
      return { only: inState(state, standings) };
  }
}

function inState(wanted: GroupState, standings: Standings): string[] {
  return [...standings].flatMap(([group, { state }]) => (state === wanted ? [group] : []));
}

function filterOf({ name, tenant }: GroupsOptions): Pick<GroupsOptions, "name" | "tenant"> {
  return { ...(name !== undefined && { name }), ...(tenant !== undefined && { tenant }) };
}
