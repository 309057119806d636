import { FlotillaError } from "../../base/errors.ts";

const nameChars = 500;

/**
 * What a user or a tenant can be called. Databases refuse some text and change other, and neither may make
 * two names of one.
 */
export function isName(value: unknown): value is string {
  const fits = typeof value === "string" && value !== "" && value.length <= nameChars;
  return fits && !value.includes("\0") && value.isWellFormed();
}

export const nameRule = `text of 1 to ${nameChars} characters`;

/**
 * A name that came in a header. Headers carry little more than ASCII, so whatever is more is
 * percent-encoded, as in an address; bytes as they are could be one text or another.
 */
export function nameInHeader(header: string, value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  const name = decoded(value);
  if (name !== undefined) return checkName(header, name);
  throw new FlotillaError(
    "invalid_input",
    `${header} must be percent-encoded, as encodeURIComponent does it: \`Zo%C3%AB\`, and \`%25\` for %`,
  );
}

export function checkName(what: string, name: string | undefined): string | undefined {
  if (name === undefined || isName(name)) return name;
  throw new FlotillaError("invalid_input", `${what} must be ${nameRule}`);
}

function decoded(value: string): string | undefined {
  if (/[^ -~]/.test(value)) return undefined;
  try {
    return decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
