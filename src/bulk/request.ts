import { FlotillaError } from "../base/errors.ts";
import { encodeJson } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fingerprintVersion, groupVersion } from "../dead-letters/fingerprint.ts";
import { namePattern } from "../flows/declare.ts";
import { checkTaskFilter, type TaskFilter, taskFilterNames } from "../tasks/inspect/filter.ts";
import {
  type BulkAction,
  bulkActions,
  type BulkRequest,
  type CheckedBulk,
  statusesOf,
} from "./bulk.ts";

const optionsOf: Readonly<Record<BulkAction, readonly string[]>> = {
  cancel: [],
  retry: ["fromStart"],
  delete: [],
  signal: ["signal", "payload"],
  resume: ["as"],
};
const maxReasonChars = 500;
const maxVersion = 1_000_000_000;

export type RequestChecks = {
  readonly maxPayloadBytes: number;
  /** Whether the store has a codec. */
  readonly encodesContent?: boolean | undefined;
};

/** Throws unless the request says what to do, and to which tasks. */
export function checkBulkRequest(
  request: BulkRequest,
  { maxPayloadBytes, encodesContent }: RequestChecks,
): CheckedBulk {
  const { action } = request;
  checkChoice("action", action, bulkActions);
  checkOptions(`bulk ${action}`, request, ["action", "filter", "reason", ...optionsOf[action]]);
  const { fromStart = false, signal, payload = null, as, reason } = request;
  const filter = checkBulkFilter(action, request.filter, encodesContent);
  if (typeof fromStart !== "boolean") {
    throw new FlotillaError("invalid_option", "fromStart must be true or false");
  }
  if (action === "signal" && (typeof signal !== "string" || !namePattern.test(signal))) {
    throw new FlotillaError(
      "invalid_option",
      "signal must be its name: 1 to 100 letters, digits and _ . : -, beginning with a letter",
    );
  }
  if (as !== undefined) {
    checkNumber("as", as, { min: 1, max: maxVersion });
    if (filter.name === undefined) {
      throw new FlotillaError(
        "invalid_option",
        "`as` is a version of one flow: give its name in the filter",
      );
    }
  }
  if (reason !== undefined) checkText("reason", reason, { max: maxReasonChars });
  return {
    action,
    filter,
    options: {
      ...(fromStart && { fromStart }),
      ...(signal !== undefined && { signal }),
      ...(as !== undefined && { as }),
    },
    payload:
      action === "signal"
        ? encodeJson(`the signal "${signal}"`, payload, { maxBytes: maxPayloadBytes })
        : null,
    reason: reason ?? null,
  };
}

/** Throws on an empty filter, because what is done to everything must be intended. */
function checkBulkFilter(
  action: BulkAction,
  given: TaskFilter,
  encodesContent: boolean | undefined,
): TaskFilter {
  const filter = checkTaskFilter(given, { within: "filter", encodesContent });
  const { status, group } = filter;
  if (Object.keys(filter).length === 0) {
    throw new FlotillaError(
      "invalid_option",
      `the filter is empty, which would be every task of the store: give at least one of ${taskFilterNames.join(", ")}`,
    );
  }
  const statuses = statusesOf[action];
  if (status !== undefined && !statuses.includes(status)) {
    throw new FlotillaError(
      "invalid_option",
      `${action} is for tasks that are ${statuses.join(" or ")}, not ${status}: change the filter's status, or leave it out`,
    );
  }
  if (filter.pod !== undefined && !statuses.includes("claimed")) {
    throw new FlotillaError(
      "invalid_option",
      `${action} is for tasks that are ${statuses.join(" or ")}, and those of a pod are claimed`,
    );
  }
  if ((filter.setAside || filter.state !== undefined) && !statuses.includes("pending")) {
    const which = filter.setAside ? "that were set aside" : `that are ${filter.state}`;
    throw new FlotillaError(
      "invalid_option",
      `${action} is for tasks that are ${statuses.join(" or ")}, and those ${which} are pending`,
    );
  }
  if (group === undefined) return filter;
  if (groupVersion(group) !== fingerprintVersion) {
    throw new FlotillaError(
      "invalid_option",
      `${JSON.stringify(group.slice(0, 40))} is no group of this release: list the groups with \`groups\``,
    );
  }
  if (statuses.includes("failed") && (status === undefined || status === "failed")) {
    return { ...filter, status: "failed" };
  }
  throw new FlotillaError(
    "invalid_option",
    `only failed tasks have a group of errors, and ${action} is for tasks that are ${status ?? statuses.join(" or ")}`,
  );
}
