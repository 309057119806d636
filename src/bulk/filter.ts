import { checkChoice, checkOptions, checkText } from "../base/options.ts";
import { FlotillaError } from "../base/errors.ts";
import { taskStatuses, type TaskStatus } from "../tasks/rows.ts";

/** Which tasks and runs are meant: those that match all that is given. */
export type BulkFilter = {
  /** Of a task, or of a flow for its runs. */
  readonly name?: string;
  readonly status?: TaskStatus;
  readonly tenant?: string;
  /** Only failed ones whose error is of this group. */
  readonly group?: string;
  /** Only runs at this transition or finalizer. */
  readonly at?: string;
  /** Only those that were set aside. */
  readonly setAside?: true;
  /** Only ids from this one on, and up to this one. Ids sort by age. */
  readonly from?: string;
  readonly to?: string;
};

const textNames = ["name", "tenant", "group", "at", "from", "to"] as const;

export const filterNames: readonly (keyof BulkFilter)[] = [...textNames, "status", "setAside"];

const maxValueChars = 500;

/** Throws unless it is a filter that statements can be made of. Returns it without what isn't given. */
export function checkFilter(what: string, given: BulkFilter): BulkFilter {
  checkOptions(what, given, filterNames);
  const named = Object.entries(given).filter(([, value]) => value !== undefined);
  const filter = Object.fromEntries(named) as BulkFilter;
  for (const name of textNames) {
    if (filter[name] !== undefined) checkText(`${what}.${name}`, filter[name], textLimit);
  }
  if (filter.status !== undefined) checkChoice(`${what}.status`, filter.status, taskStatuses);
  if (filter.setAside !== undefined && filter.setAside !== true) {
    throw new FlotillaError("invalid_option", `${what}.setAside must be true, or left out`);
  }
  return filter;
}

const textLimit = { max: maxValueChars };
