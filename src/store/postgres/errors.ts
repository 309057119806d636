import { type ErrorCode, FlotillaError, messageOf } from "../../base/errors.ts";
import { auditedBefore, auditFull } from "../audit.ts";

const readOnly = "25006";

type Known = {
  readonly code: ErrorCode;
  readonly advice: string;
  /** What the server refuses of this program: it can be reached, but not by this one. */
  readonly refuses?: string;
};

/** Definite answers of the server: nothing was done. */
const definite: Readonly<Record<string, Known>> = {
  "25006": {
    code: "store_read_only",
    advice: "it is read-only, as a standby is: connect to the primary",
  },
  "28000": {
    code: "store_unavailable",
    advice: "it refuses this user: check the URL",
    refuses: "user",
  },
  "28P01": {
    code: "store_unavailable",
    advice: "the password is wrong: check the URL",
    refuses: "password",
  },
  "3D000": {
    code: "store_missing",
    advice: "that database doesn't exist: create it, or check the URL",
  },
  "3F000": { code: "store_outdated", advice: "its schema is missing: run `flotilla migrate`" },
  "40001": {
    code: "store_busy",
    advice: "it conflicted with other transactions again and again: try again",
  },
  "40P01": {
    code: "store_busy",
    advice: "it deadlocked with other transactions again and again: try again",
  },
  "42501": {
    code: "store_read_only",
    advice:
      "this role may not do that: grant it the right, or do it as the role that owns the schema, such as `flotilla migrate` (docs/postgres.md, Roles)",
  },
  "42P01": { code: "store_outdated", advice: "a table is missing: run `flotilla migrate`" },
  "53100": { code: "store_full", advice: "its disk is full: free some space" },
  "53300": {
    code: "store_unavailable",
    advice: "it has no connection left: raise max_connections or use a pooler",
  },
  "55P03": { code: "store_busy", advice: "a lock wasn't granted in time" },
  "57014": { code: "store_busy", advice: "the statement took too long and was cancelled" },
};

/**
 * Like `definite`, for whole classes of errors by their first two digits. These are transient, or
 * an operator can fix them.
 */
const definiteByClass: typeof definite = {
  "53": {
    code: "store_unavailable",
    advice: "it is short of memory, connections or another resource",
  },
  "58": { code: "store_unavailable", advice: "its machine reported an error" },
};

const unknownAuthority =
  "its certificate isn't signed by a trusted authority: name the authority with `sslrootcert=<file>` in the URL or `ssl: { ca }`";

/** Why a connection failed, by Node's error code. */
const unreachable: Readonly<Record<string, string>> = {
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  DEPTH_ZERO_SELF_SIGNED_CERT: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  CERT_SIGNATURE_FAILURE: unknownAuthority,
  CERT_HAS_EXPIRED: "its certificate has expired",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another host: use the name that it is for",
  ENOTFOUND: "there is no such host: check the URL",
  ECONNREFUSED: "nothing listens there: check host and port, and that the server runs",
  ENOENT: "a file or socket that the URL names isn't there",
};

/** Conflicts of two transactions: the one that was undone can be retried. */
const undone = ["40001", "40P01"];

export function sqlState(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

export function wasUndone(error: unknown): boolean {
  return undone.includes(sqlState(error) ?? "") || isEventRace(error);
}

/** Why a transaction was undone, for metrics. */
export function undoneBy(error: unknown): "deadlock" | "serialization" | "race" {
  const state = sqlState(error);
  if (state === "40P01") return "deadlock";
  return state === "40001" ? "serialization" : "race";
}

/** Two transactions gave a row the same number at the same time: the retry takes the next one. */
function isEventRace(error: unknown): boolean {
  const constraint = error instanceof Error && "constraint" in error ? error.constraint : undefined;
  return sqlState(error) === "23505" && constraint === "task_event_pkey";
}

/**
 * A pooler switched to a connection where the statement is not prepared, or is prepared by another
 * process.
 */
export function preparedElsewhere(error: unknown): boolean {
  return ["26000", "42P05"].includes(sqlState(error) ?? "");
}

/** The tables changed after a statement was prepared. */
export function isStalePlan(error: unknown): boolean {
  const routine = error instanceof Error && "routine" in error ? error.routine : undefined;
  return sqlState(error) === "0A000" && routine === "RevalidateCachedQuery";
}

/** The server, or this connection, is read-only. */
export function isReadOnly(error: unknown): boolean {
  return sqlState(error) === readOnly || isSerializableOnStandby(error);
}

/** A standby refuses a serializable transaction before it says that it is read-only. */
function isSerializableOnStandby(error: unknown): boolean {
  return sqlState(error) === "0A000" && messageOf(error).includes("hot standby");
}

/** The server has cancelled a statement that took too long. */
export function isTooSlow(error: unknown): boolean {
  return sqlState(error) === "57014";
}

/** A pooler, or a server that isn't Postgres, refused the startup settings of a session. */
export function refusesSettings(error: unknown): boolean {
  const state = sqlState(error) ?? "";
  return (
    ["08P01", "0A000", "42704"].includes(state) &&
    /(startup|configuration) parameter/.test(messageOf(error))
  );
}

/** True for an error that the server sent, and not one of the connection. */
export function isSpoken(error: unknown): boolean {
  return error instanceof Error && "severity" in error && error.severity !== undefined;
}

/**
 * Converts the driver's error. `sent` says whether the server may have received the statement. Then
 * the error is definite only if the server has `refused` it; otherwise the outcome is unknown.
 */
export function postgresError(
  error: unknown,
  { sent, refused = isSpoken(error) }: { sent: boolean; refused?: boolean },
): FlotillaError {
  if (error instanceof FlotillaError) return error;
  const state = isReadOnly(error) ? readOnly : (sqlState(error) ?? "");
  const known = definite[state] ?? definiteByClass[state.slice(0, 2)];
  if (sent && !refused) {
    return new FlotillaError(
      "unknown_outcome",
      `the database connection broke: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
  if (known) {
    const message = `the database: ${known.advice} (${messageOf(error)})`;
    const details = known.refuses === undefined ? {} : { details: { refuses: known.refuses } };
    return new FlotillaError(known.code, message, { cause: error, ...details });
  }
  if (sent && isOfAudit(error)) {
    if (state === "23505") return auditedBefore(error);
    if (state === "23502") return auditFull(error);
  }
  if (sent) {
    return new FlotillaError("internal", `the database: ${messageOf(error)}`, { cause: error });
  }
  const why = whyUnreachable(error);
  const message = `the database can't be reached: ${why}${messageOf(error)}${why && ")"}`;
  return new FlotillaError("store_unavailable", message, { cause: error });
}

/** The server refused a row of the audit's table. */
function isOfAudit(error: unknown): boolean {
  return error instanceof Error && "table" in error && error.table === "audit";
}

function whyUnreachable(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (unreachable[code] !== undefined) return `${unreachable[code]} (`;
  const message = messageOf(error);
  if (/does not support SSL/.test(message))
    return "it offers no TLS: set it up there, or use sslmode=disable (";
  if (/timeout exceeded when trying to connect/.test(message)) {
    return "no connection became free in time: raise `connections`, or max of your pool (";
  }
  if (/Connection terminated due to connection timeout|timeout expired/.test(message)) {
    return "it didn't answer within `connectTimeoutMs`: raise that if it is suspended and takes longer to wake (";
  }
  return "";
}
