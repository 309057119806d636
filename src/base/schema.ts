import { type ErrorCode, FlotillaError } from "./errors.ts";

/**
 * The part of a Standard Schema (zod, valibot, arktype …) that is used: https://standardschema.dev
 */
export type Schema<Input = unknown, Output = Input> = {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Checked<Output> | Promise<Checked<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
};

type Checked<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

type Issue = {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
};

const maxIssuesShown = 5;

/**
 * Returns the checked value, or throws what is wrong and where. A promise only if the schema
 * returns one.
 */
export function check<Output>(
  schema: Schema<unknown, Output> | undefined,
  value: unknown,
  what: string,
  code: ErrorCode,
): Output | Promise<Output> {
  if (!schema) return value as Output;
  const judge = (checked: Checked<Output>): Output => {
    if (!checked.issues) return checked.value;
    const issues = checked.issues.slice(0, maxIssuesShown).map(describe);
    const more = checked.issues.length - issues.length;
    const text = issues.join("; ") + (more > 0 ? `; and ${more} more` : "");
    throw new FlotillaError(code, `${what} doesn't fit its schema: ${text}`, {
      details: { issues },
    });
  };
  const checked = schema["~standard"].validate(value);
  return checked instanceof Promise ? checked.then(judge) : judge(checked);
}

/** Throws at the declaration if the value is not a schema, and not only with the first input. */
export function checkSchema(what: string, schema: unknown): void {
  if (schema === undefined) return;
  const { "~standard": standard } = (schema ?? {}) as Partial<Schema>;
  if (typeof standard?.validate === "function") return;
  throw new FlotillaError(
    "invalid_option",
    `${what} must be a Standard Schema, such as zod, valibot and arktype make`,
  );
}

function describe(issue: Issue): string {
  const path = (issue.path ?? [])
    .map((step) => String(typeof step === "object" ? step.key : step))
    .join(".");
  return path ? `${path}: ${issue.message}` : issue.message;
}

/** The JSON Schema of what a schema takes. Throws if its library can't write one. */
export function jsonSchemaOf(what: string, schema: Schema<any, any>): Record<string, unknown> {
  const { jsonSchema } = schema["~standard"] as {
    jsonSchema?: { input(options: { target: string }): Record<string, unknown> };
  };
  try {
    if (jsonSchema) return jsonSchema.input({ target: "draft-2020-12" });
  } catch (error) {
    throw notWritable(what, error instanceof Error ? error.message : String(error));
  }
  throw notWritable(what, "its library has no Standard JSON Schema, as zod has since 4.2");
}

function notWritable(what: string, why: string): FlotillaError {
  return new FlotillaError("invalid_option", `${what} can't be written as JSON Schema: ${why}`);
}
