import type { Context, Hono } from "hono";
import type { z } from "zod";
import { type Actor, actAs } from "../audit/actor.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkIntegers } from "../base/json.ts";
import { isStorable } from "../base/options.ts";
import type { Semaphore } from "../base/semaphore.ts";
import { accountIn, addressIn, bodyOf, incomingBodyIn, isGone } from "./admission/admission.ts";
import { countBodyBytes } from "./admission/uploads.ts";
import type { RouteSpec } from "./api/schema.ts";
import { callerOf } from "./auth/authenticate.ts";
import { actorOf, type Caller, requireAccess } from "./auth/caller.ts";
import type { Serializer } from "./serializer.ts";
import { validate } from "./validate.ts";

/** A route: its spec and its handler. */
export type Route = {
  readonly spec: RouteSpec;
  readonly handle: (c: Context, serializer: Serializer) => Promise<Response>;
};

/** The validated input of a handler. */
type RouteRequest<S extends RouteSpec> = {
  readonly params: Readonly<Record<ParamsOf<S["path"]>, string>>;
  readonly query: S["query"] extends z.ZodType ? z.output<S["query"]> : undefined;
  /** Reads and validates the body. */
  readonly body: S["body"] extends z.ZodType ? () => Promise<z.output<S["body"]>> : undefined;
  readonly caller: Caller;
  readonly context: Context;
};

/** The answer of a handler: a declared status, with the body that is declared for it. */
type RouteAnswer<S extends RouteSpec> = {
  [Status in keyof S["answers"] & number]: {
    readonly status: Status;
    readonly body: S extends { answerType: string }
      ? Streamed
      : z.input<S["answers"][Status]> | (S extends { follows: true } ? ReadableStream : never);
    readonly headers?: Readonly<Record<string, string>>;
    /** The content is of the caller's own conversation, and is shown as it is. */
    readonly isOwn?: boolean;
  };
}[keyof S["answers"] & number];

/** An answer that isn't JSON, complete or streamed. */
type Streamed = string | ReadableStream<Uint8Array> | null;

type ParamsOf<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | ParamsOf<Rest>
  : never;

type AnyAnswer = {
  status: 200 | 204 | 304;
  body: unknown;
  headers?: Record<string, string>;
  isOwn?: boolean;
};

type MountParts = {
  /** What every answer passes on its way out. */
  serializer: Serializer;
  /** A stopping server takes only reads. */
  /** Bounds concurrent reads of pages: a page takes several times its size until it is an answer. */
  pageSemaphore: Semaphore;
};

// Enough for names, ids and settings.
const defaultMaxBodyBytes = 4_096;

/** Binds a handler to its spec: `route(spec).to(handle)`. */
export function route<S extends RouteSpec>(
  spec: S,
  { maxBytes = defaultMaxBodyBytes }: { maxBytes?: number } = {},
): { to(handle: (request: RouteRequest<S>) => Promise<RouteAnswer<S>> | RouteAnswer<S>): Route } {
  const { query, body, answerType } = spec;
  const readBody = spec.bodyOptional ? optionalJsonBody : jsonBody;
  return {
    to: (handle) => ({
      spec,
      async handle(c, serializer) {
        const caller = callerOf(c);
        const request = {
          params: checkedParams(spec, c.req.param()),
          query:
            query &&
            validate("the query", query, gathered(query, checkedQuery(c.req.query())), "query"),
          body:
            body && (async () => validate("the body", body, await readBody(c, maxBytes), "body")),
          caller,
          context: c,
        };
        // The compiler has checked the handler's types; the code below needs only this shape.
        const answer = (await handle(
          request as unknown as RouteRequest<S>,
        )) as unknown as AnyAnswer;
        const { status, body: content, isOwn } = answer;
        if (status === 204 || status === 304) return c.body(null, status, answer.headers);
        const headers = { "Content-Type": answerType ?? "application/json", ...answer.headers };
        if (content === null && answerType !== undefined) return c.body(null, status, headers);
        if (content instanceof ReadableStream) return c.body(content, status, headers);
        // As bytes, which take less memory than text while they wait to be read.
        const bytes = Buffer.from(
          answerType === undefined
            ? JSON.stringify(serializer.shown(spec.answers[status]!, content, { caller, isOwn }))
            : String(content),
        );
        const sized = { ...headers, "Content-Length": String(bytes.length) };
        return c.body(bodyOf(c, bytes), status, sized);
      },
    }),
  };
}

export function mount(
  app: Hono,
  { spec, handle }: Route,
  { serializer, pageSemaphore }: MountParts,
): void {
  const { method, path, query, waits } = spec;
  const isList = query !== undefined && ("limit" in query.shape || "cursor" in query.shape);
  const isPage = method === "get" && isList && !waits;
  app.on(method.toUpperCase(), path.replaceAll(/\{(\w+)\}/g, ":$1"), (c) => {
    if (!spec.open) requireAccess(callerOf(c), spec);
    const answer = () => handle(c, serializer);
    if (method !== "get") return actAs(actorIn(c), answer);
    return isPage ? withPageSlot(c, pageSemaphore, answer) : answer();
  });
}

/** The caller of a request as the audit names it, with the id that it gave its act. */
export function actorIn(c: Context): Actor {
  const from = { address: addressIn(c), actId: c.req.header("flotilla-action") };
  return actorOf(callerOf(c), from);
}

/** Reads a page of a list in the caller's turn, unless the caller has hung up by then. */
export function withPageSlot<Page>(
  c: Context,
  pageSemaphore: Semaphore,
  read: () => Promise<Page>,
): Promise<Page> {
  return pageSemaphore.run(
    () =>
      isGone(c) ? Promise.reject(new FlotillaError("closed", "the client has hung up")) : read(),
    accountIn(c),
  );
}

/** What no store can hold is the id of nothing, and is an error of the store where that is asked. */
function checkedParams<Params extends Record<string, string>>(
  { errors }: RouteSpec,
  params: Params,
): Params {
  if (Object.values(params).every(isStorable) || !errors.includes("not_found")) return params;
  throw new FlotillaError("not_found", "there is nothing with this id: no id has such characters");
}

function checkedQuery(query: Record<string, string>): Record<string, string> {
  const bad = Object.entries(query).find(([, text]) => !isStorable(text));
  if (!bad) return query;
  const name = bad[0].slice(0, 80);
  throw new FlotillaError("invalid_option", `${name} must be text that databases can store`);
}

/** What is searched by paths, with an example of one. */
const searched = { payload: "order.id=7", metadata: "ticket.id=7" } as const;

/**
 * Parameters such as `payload.<path>` as one, for a route that takes it: pairs of paths and values, as JSON.
 */
function gathered(schema: z.ZodObject, query: Record<string, string>): Record<string, string> {
  for (const [what, example] of Object.entries(searched)) {
    if (!(what in schema.shape)) continue;
    if (Object.hasOwn(query, what)) {
      throw new FlotillaError(
        "invalid_option",
        `${what} needs a path: write ${what}.<path>=<value>, such as ${what}.${example}`,
      );
    }
    const prefix = `${what}.`;
    const [ofIt, others] = parted(Object.entries(query), ([name]) => name.startsWith(prefix));
    if (ofIt.length === 0) continue;
    const pairs = ofIt.map(([name, text]) => [name.slice(prefix.length), text]);
    return Object.fromEntries([...others, [what, JSON.stringify(pairs)]]);
  }
  return query;
}

function parted<Item>(items: readonly Item[], is: (item: Item) => boolean): [Item[], Item[]] {
  return [items.filter(is), items.filter((item) => !is(item))];
}

/** The content type of the body, without parameters. */
export function contentTypeOf(c: Context): string | undefined {
  return c.req.header("content-type")?.split(";")[0]?.trim().toLowerCase();
}

/** Counts while it reads, because Content-Length may be missing or wrong. */
export async function readRequestBody(c: Context, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  const incoming = incomingBodyIn(c);
  let bytes = 0;
  try {
    for await (const chunk of c.req.raw.body ?? []) {
      bytes += chunk.length;
      if (bytes > maxBytes) {
        // The rest isn't read, so that nothing else can come on this connection.
        c.header("Connection", "close");
        throw new FlotillaError(
          "payload_too_large",
          `the body takes more than ${maxBytes} bytes: store it elsewhere and pass a reference`,
          { details: { maxBytes } },
        );
      }
      countBodyBytes(c, bytes);
      chunks.push(chunk);
      incoming?.add(chunk.length);
    }
  } catch (error) {
    // A client that hangs up is no error of the server, and must not fill its log.
    if (error instanceof FlotillaError || !isGone(c)) throw error;
    throw new FlotillaError("closed", "the client has hung up", { cause: error });
  } finally {
    incoming?.end();
  }
  return Buffer.concat(chunks);
}

async function jsonBody(c: Context, maxBytes: number): Promise<unknown> {
  const type = contentTypeOf(c);
  if (type !== "application/json") {
    throw new FlotillaError(
      "unsupported",
      `the body must be JSON: send \`Content-Type: application/json\`, not ${JSON.stringify(type ?? "nothing")}`,
    );
  }
  return parseBody(await readRequestBody(c, maxBytes));
}

/** Parses a body, of which no digit may be lost unnoticed. */
export function parseBody(bytes: Uint8Array): unknown {
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (error) {
    throw new FlotillaError("invalid_input", "the body isn't JSON in UTF-8", { cause: error });
  }
  checkIntegers("the body", text);
  return value;
}

/** The same where the body may be left out, which means `{}`. */
async function optionalJsonBody(c: Context, maxBytes: number): Promise<unknown> {
  const isEmpty = c.req.raw.body === null || c.req.header("content-length") === "0";
  return isEmpty ? {} : jsonBody(c, maxBytes);
}
