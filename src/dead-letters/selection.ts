import { FlotillaError } from "../base/errors.ts";
import { checkOptions } from "../base/options.ts";
import { fingerprintVersion, groupVersion } from "./fingerprint.ts";

/** What is to be started over or given up: a group, one task, all of a name, or all. */
export type Selection = {
  readonly group?: string;
  readonly taskId?: string;
  readonly name?: string;
  readonly all?: true;
};

/** What of a selection may be picked. */
export type Picking = {
  /** Only what had failed by then. */
  readonly untilMs?: number;
  /** Not what one of these redrives has started over. */
  readonly notOf?: readonly string[];
};

// A redrive is kept with what it was asked for.
const valueChars = 500;
const kinds = ["group", "taskId", "name", "all"] as const;

/** Refuses a selection that doesn't say exactly one thing: what is started over or given up must be meant. */
export function checkSelection(given: Selection): Selection {
  checkOptions("selection", given, kinds);
  const said = kinds.filter((kind) => given[kind] !== undefined);
  const [kind] = said;
  if (kind === undefined || said.length > 1) {
    throw new FlotillaError(
      "invalid_option",
      `name one of ${kinds.join(", ")}: ${said.length === 0 ? "none was" : `${said.join(" and ")} were`} given`,
    );
  }
  if (kind === "all") {
    if (given.all === true) return { all: true };
    throw new FlotillaError("invalid_option", "all must be true");
  }
  const value = given[kind];
  if (typeof value !== "string" || value === "") {
    throw new FlotillaError("invalid_option", `${kind} must be text`);
  }
  if (value.length > valueChars) {
    throw new FlotillaError(
      "invalid_option",
      `${kind} must be ${valueChars} characters at most, as those of tasks are`,
    );
  }
  if (kind === "group" && groupVersion(value) !== fingerprintVersion) {
    throw new FlotillaError(
      "invalid_option",
      `${JSON.stringify(value.slice(0, 40))} is no group of this release: \`groups\` lists those there are`,
    );
  }
  return { [kind]: value };
}
