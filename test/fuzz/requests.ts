/**
 * Requests of the fuzz. Each is made from the spec of a route and the seed alone: first a valid one, then,
 * for most, changes of its values, its text, its headers or the way that it is sent.
 */
import { isJsonObject } from "../../src/base/json.ts";
import { seededRandom } from "../../src/base/random.ts";
import type { RouteSpec } from "../../src/server/api/schema.ts";
import { allSpecs } from "../../src/server/openapi.ts";
import { type Draw, drawOf, type Known, seedOf } from "./draw.ts";
import {
  bodySchema,
  hostileText,
  hostileValue,
  type JsonSchema,
  mutated,
  querySchemas,
  valueOf,
} from "./values.ts";

export type FuzzRequest = {
  readonly number: number;
  /** The operation that it was made for. */
  readonly route: string;
  readonly caller: string;
  readonly bytes: Buffer;
  /** Of each request in these bytes: the one that counts has others around it where they are pipelined. */
  readonly methods: readonly string[];
  /** Which of them counts. */
  readonly at: number;
  /** Whether a complete answer is due. Else the connection may just end. */
  readonly isWhole: boolean;
  /** The connection is cut after these bytes, and no answer is awaited. */
  readonly isCut: boolean;
  /** The id that it gave its act. */
  readonly actId: string | undefined;
  readonly changes: readonly string[];
};

/** Routes that send work to the fleet: they leave no entry. */
const sends = ["enqueueTask", "enqueueTasks", "enqueueGraph", "startRun"];

/** Whether a request of this operation sends work, and by that may replace work that waits. */
export function isSending({ operationId }: RouteSpec): boolean {
  return sends.includes(operationId);
}

/** Whether a request of this operation is an act: what it changes leaves an entry. */
export function isActOf(spec: RouteSpec): boolean {
  const { method, verb = "admin" } = spec;
  const isOfFleet = verb === "admin" || verb === "fleet:operate";
  return method !== "get" && isOfFleet && !isSending(spec);
}

type Target = {
  readonly spec: RouteSpec;
  readonly query: Readonly<Record<string, JsonSchema>>;
  readonly body: JsonSchema | undefined;
};

const targets: readonly Target[] = allSpecs.map((spec) => ({
  spec,
  query: querySchemas(spec.query),
  body: spec.body && bodySchema(spec.body),
}));

/** Requests before the first change: each route is asked as it should be, by a caller that may. */
export const firstPass = targets.length;

/** The callers by their names. The first may do everything. */
export type Callers = Readonly<Record<string, CallerSent>>;
type CallerSent = {
  readonly headers: Readonly<Record<string, string>>;
  /** `all`: it says which tenant's sessions and agents it means. */
  readonly sees: string;
};

export function makeRequest(
  { seed, number }: { seed: number; number: number },
  { known, callers }: { known: Known; callers: Callers },
): FuzzRequest {
  const draw = drawOf(seededRandom(seedOf(seed, number)), known);
  const target = targets[number % targets.length]!;
  const isFirst = number < firstPass;
  const caller = isFirst ? Object.keys(callers)[0]! : callerOf(callers, draw);
  const plain = plainRequest(target, draw, isFirst ? 0 : 0.35);
  const actId = `fuzz-${seed}-${number}`;
  const headers: [string, string][] = [
    ["Host", "localhost"],
    ...Object.entries(callers[caller]!.headers),
    ...tenantHeader(callers[caller]!, plain.path, draw),
    ...(isActOf(target.spec) ? [["Flotilla-Action", actId] as [string, string]] : []),
  ];
  const draft: Draft = { ...plain, headers, actId, changes: [] };
  if (!isFirst && draw.chance(0.6)) {
    const count = draw.pick([1, 1, 1, 2, 3]);
    for (let at = 0; at < count; at++) changeOnce(draft, target, draw);
  }
  return framed(draft, { number, caller, target, draw, isFirst });
}

/** Often the one that may do everything, and seldom one whose every request is refused. */
function callerOf(callers: Callers, draw: Draw): string {
  const names = Object.keys(callers);
  if (draw.chance(0.3)) return names[0]!;
  const isRefused = draw.chance(0.15);
  return draw.pick(names.filter((name) => (callers[name]!.sees === "none") === isRefused));
}

/** Ids begin with the name of their tenant. */
function tenantHeader({ sees }: CallerSent, path: string, draw: Draw): [string, string][] {
  const [, tenant] = /\/(acme|umbra)-/.exec(path) ?? [];
  if (sees !== "all" || !draw.chance(0.8)) return [];
  return [["Flotilla-Tenant", tenant ?? draw.pick(["acme", "umbra"])]];
}

/** A request while changes are made to it. */
type Draft = {
  method: string;
  path: string;
  query: [string, string][];
  /** In place of path and query. */
  rawTarget?: string;
  headers: [string, string][];
  body: unknown;
  /** In place of `body`. */
  rawBody?: Buffer;
  actId: string;
  changes: string[];
};

function plainRequest({ spec, query, body }: Target, draw: Draw, queryShare: number) {
  const path = spec.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const ids = draw.known[name] ?? [];
    return encodeURIComponent(ids.length > 0 ? draw.pick(ids) : "none");
  });
  const asked = Object.entries(query).filter(() => draw.chance(queryShare));
  return {
    method: spec.method.toUpperCase(),
    path,
    query: asked.map(([name, schema]): [string, string] => [
      name,
      String(valueOf(schema, name, draw)),
    ]),
    body: body && !(spec.bodyOptional && draw.chance(0.3)) ? valueOf(body, "", draw) : undefined,
  };
}

type Change = (draft: Draft, draw: Draw, target: Target) => void;

/** What may be changed of any request. */
const common: Readonly<Record<string, Change>> = {
  method(draft, draw) {
    draft.method = draw.pick(
      "HEAD OPTIONS GET POST PUT DELETE PATCH TRACE PROPFIND get GETT".split(" "),
    );
  },
  path(draft, draw) {
    const { path } = draft;
    draft.rawTarget = draw.pick([
      `/${path}`,
      path.replaceAll("/", "//"),
      `${path}/`,
      `${path}/..`,
      `${path}%00`,
      `${path}%`,
      `${path}%zz`,
      `${path}%c3%28`,
      `${path}%ed%a0%80`,
      `${path};x=1`,
      `${path}#part`,
      path.replace(/[^/]*$/, encodeURIComponent("x".repeat(9_000))),
      path.replaceAll(/[a-z]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
      `http://elsewhere.example${path}`,
      `//elsewhere.example${path}`,
      "*",
      path.replace(/[^/]+$/, "__proto__"),
      path.replace(/[^/]+$/, ".."),
      path.toUpperCase(),
    ]);
  },
  id(draft, draw) {
    const ids = Object.values(draw.known).flat();
    draft.path = draft.path.replace(/[^/]+$/, encoded(draw.pick(ids)));
  },
  /** In place of the parameter of the route, or of the last part. */
  "hostile id"(draft, draw, { spec }) {
    const parts = spec.path.split("/");
    const parameter = parts.findIndex((part) => part.startsWith("{"));
    const at = parameter === -1 ? parts.length - 1 : parameter;
    const given = draft.path.split("/");
    draft.path = given.with(at, encoded(hostileText(draw))).join("/");
  },
  "another query"(draft, draw) {
    const name = draw.pick([...draft.query.map(([each]) => each), "limit", "cursor", "x"]);
    draft.query.push([name, hostileText(draw)]);
  },
  "a doubled query"(draft, draw) {
    const [name, value] = draft.query[0] ?? ["limit", "1"];
    draft.query = [...draft.query, [name, value], [name, hostileText(draw)]];
  },
  "a raw query"(draft, draw) {
    const { path } = draft;
    const raw = draw.pick(["?", "?&&", "?=", "?limit", "?limit=%", "?limit=1%00", "?a[]=1&a[]=2"]);
    draft.rawTarget = `${path}${raw}`;
  },
  "content type"(draft, draw) {
    const types = [
      "",
      "text/plain",
      "application/x-www-form-urlencoded",
      "application/json; charset=utf-16",
      "APPLICATION/JSON",
      "application/x-ndjson",
      "multipart/form-data; boundary=x",
      "application/json, text/plain",
      ";",
    ];
    withHeader(draft, "Content-Type", draw.pick(types));
  },
  header(draft, draw) {
    const [name, values] = draw.pick(oddHeaders);
    const value = draw.pick(values);
    if (draw.chance(0.5)) withHeader(draft, name, value);
    else draft.headers.push([name, value]);
  },
  tenant(draft, draw) {
    withHeader(draft, "Flotilla-Tenant", draw.pick(["acme", "umbra", "default", "none", "%61cme"]));
  },
  user(draft, draw) {
    withHeader(draft, "Flotilla-User", draw.pick(["ada", "bob", "zoe", "Zo%C3%AB", "%00", "%"]));
  },
};

/** What may be changed of a request with a body. */
const ofBody: Readonly<Record<string, Change>> = {
  value(draft, draw) {
    draft.body = mutated(draft.body, draw);
  },
  "another value"(draft, draw) {
    draft.body = mutated(mutated(draft.body, draw), draw);
  },
  "a whole body"(draft, draw) {
    draft.body = hostileValue(draw);
  },
  text(draft, draw) {
    const text = JSON.stringify(draft.body) ?? "";
    const cut = draw.between(0, text.length);
    draft.rawBody = Buffer.from(
      draw.pick([
        text.slice(0, cut),
        `${text}${text}`,
        `\ufeff${text}`,
        `${text}]`,
        text.replace("{", '{"name":"mail","name":"order",'),
        text.replace(/\d+/, "1e400"),
        text.replace(/\d+/, "123456789012345678901234567890"),
        text.replace(/:"/, ':"\\ud800'),
        text.replace(/:"/, ':"\\u0000'),
        text.replace("{", '{"__proto__":{"tenant":"umbra"},'),
        "[".repeat(100_000),
        '{"a":'.repeat(20_000),
        "NaN",
        "",
        " ",
        "null",
      ]),
    );
  },
  bytes(draft, draw) {
    const bytes = Buffer.from(JSON.stringify(draft.body) ?? "{}");
    if (bytes.length > 0)
      for (let at = draw.between(1, 4); at > 0; at--)
        bytes[draw.between(0, bytes.length - 1)] = draw.between(0, 255);
    draft.rawBody = bytes;
  },
  size(draft, draw) {
    const filler = "x".repeat(draw.pick([4_200, 70_000, 600_000]));
    draft.body = isJsonObject(draft.body) ? { ...draft.body, filler } : [filler];
  },
};

const oddHeaders: readonly [string, readonly string[]][] = [
  [
    "Authorization",
    ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer a.b.c", `Bearer ${"x".repeat(9_000)}`],
  ],
  ["Flotilla-Action", ["", "a b", "x".repeat(201), "same-act", "caf\u00e9"]],
  ["If-Match", ['"1"', "*", "W/x", '"-1"', "99999999999999999999"]],
  ["Last-Event-ID", ["1", "-1", "x", "9".repeat(40)]],
  ["traceparent", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-0", "x"]],
  ["tracestate", ["a=1", "x".repeat(2_000)]],
  ["Origin", ["https://evil.example", "null", "http://localhost"]],
  ["Host", ["evil.example", "", "localhost:1", "[::1", "a b"]],
  ["Cookie", ["flotilla=1", "x".repeat(5_000)]],
  ["Accept", ["text/html", "*/*;q=0", "application/json, text/event-stream"]],
  ["Expect", ["100-continue", "200-maybe"]],
  ["Content-Encoding", ["gzip", "br"]],
  ["Upgrade", ["websocket", "h2c"]],
  ["Connection", ["upgrade", "close", "keep-alive, x", "Transfer-Encoding"]],
  ["Range", ["bytes=0-1", "bytes=-1"]],
  ["X-Forwarded-For", ["10.0.0.1", "x"]],
  ["Access-Control-Request-Method", ["DELETE"]],
  ["X-\u0000", ["1"]],
  ["X-Long", ["x".repeat(20_000)]],
  [" bad name", ["1"]],
];

function changeOnce(draft: Draft, target: Target, draw: Draw): void {
  const hasBody = target.body !== undefined;
  const from = hasBody && draw.chance(0.55) ? ofBody : common;
  const name = draw.pick(Object.keys(from));
  from[name]!(draft, draw, target);
  draft.changes.push(name);
}

function withHeader(draft: Draft, name: string, value: string): void {
  const isIt = ([each]: readonly [string, string]) => each.toLowerCase() === name.toLowerCase();
  draft.headers = [...draft.headers.filter((each) => !isIt(each)), [name, value]];
}

/** Lone surrogates have no percent-encoding: their bytes are sent all the same. */
function encoded(text: string): string {
  return text.isWellFormed() ? encodeURIComponent(text) : "%ed%a0%80";
}

type Framing = "plain" | "chunked" | "cut" | "short" | "broken chunks" | "pipelined";

function framed(
  draft: Draft,
  parts: { number: number; caller: string; target: Target; draw: Draw; isFirst: boolean },
): FuzzRequest {
  const { number, caller, target, draw, isFirst } = parts;
  const { spec } = target;
  const query = draft.query.map(([name, value]) => `${encoded(name)}=${encoded(value)}`).join("&");
  const uri = draft.rawTarget ?? `${draft.path}${query === "" ? "" : `?${query}`}`;
  const isRows = spec.bodyTypes?.includes("application/x-ndjson") === true && draw.chance(0.3);
  const body = bytesOf(draft, isRows);
  const hasType = draft.headers.some(([name]) => name.toLowerCase() === "content-type");
  const type = isRows ? "application/x-ndjson" : "application/json";
  const headers = [
    ...draft.headers,
    ...(body.length > 0 && !hasType ? [["Content-Type", type] as [string, string]] : []),
  ];
  const framings: readonly Framing[] = [
    "pipelined",
    ...(body.length > 0 ? (["chunked"] as const) : []),
    ...(needsWhole(draft, target) ? (["cut", "short", "broken chunks"] as const) : []),
  ];
  const framing: Framing = isFirst || !draw.chance(0.12) ? "plain" : draw.pick(framings);
  const head = (more: readonly [string, string][]) =>
    Buffer.from(
      [
        `${draft.method} ${uri} HTTP/1.1`,
        ...[...headers, ...more].map(([name, value]) => `${name}: ${value}`),
        "",
        "",
      ].join("\r\n"),
      "latin1",
    );
  const sized = (bytes: number) => head(body.length > 0 ? [["Content-Length", `${bytes}`]] : []);
  const request = {
    number,
    route: spec.operationId,
    caller,
    methods: [draft.method],
    at: 0,
    isCut: false,
    actId: draft.headers.some(([, value]) => value === draft.actId) ? draft.actId : undefined,
    isWhole: framing === "plain" && !draft.changes.some((each) => mayEnd.includes(each)),
    changes: [...draft.changes, ...(framing === "plain" ? [] : [framing])],
  };
  switch (framing) {
    case "plain":
      return { ...request, bytes: Buffer.concat([sized(body.length), body]) };
    case "chunked": {
      const half = Math.ceil(body.length / 2);
      const bytes = [head(chunkedHeader), chunk(body.subarray(0, half))];
      if (half < body.length) bytes.push(chunk(body.subarray(half)));
      return { ...request, bytes: Buffer.concat([...bytes, chunk(Buffer.alloc(0))]) };
    }
    case "broken chunks": {
      const odd = Buffer.from(draw.pick(["zz\r\nxx\r\n", "ffffffffffffffffff\r\n", "-1\r\n\r\n"]));
      return { ...request, bytes: Buffer.concat([head(chunkedHeader), odd, body]) };
    }
    case "short":
      return { ...request, bytes: Buffer.concat([sized(Math.floor(body.length / 2)), body]) };
    case "cut": {
      const bytes = Buffer.concat([sized(body.length + draw.between(1, 500)), body]);
      const end = draw.chance(0.5) ? bytes.length : draw.between(1, bytes.length);
      return { ...request, isCut: true, bytes: bytes.subarray(0, end) };
    }
    case "pipelined": {
      const before = draw.between(0, 3);
      const after = draw.between(1, 3);
      const own = Buffer.concat([sized(body.length), body]);
      const others = (count: number) => Array.from({ length: count }, () => healthCheck);
      return {
        ...request,
        bytes: Buffer.concat([...others(before), own, ...others(after)]),
        methods: [
          ...Array<string>(before).fill("GET"),
          draft.method,
          ...Array<string>(after).fill("GET"),
        ],
        at: before,
      };
    }
  }
}

/**
 * Whether nothing is done before all of it has come. What needs no body may be done though the connection
 * fails meanwhile, and its entry would be taken for that of the next request.
 */
function needsWhole({ changes }: Draft, { spec, body }: Target): boolean {
  const needsBody = body !== undefined && !spec.bodyOptional;
  return (spec.method === "get" || needsBody) && !changes.some((each) => mayEnd.includes(each));
}

/** Changes after which Node may end the connection before there is an answer. */
const mayEnd = ["method", "path", "a raw query", "header", "another query", "id", "hostile id"];
const chunkedHeader: readonly [string, string][] = [["Transfer-Encoding", "chunked"]];
const healthCheck = Buffer.from("GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");

function chunk(bytes: Buffer): Buffer {
  return Buffer.concat([
    Buffer.from(`${bytes.length.toString(16)}\r\n`),
    bytes,
    Buffer.from("\r\n"),
  ]);
}

function bytesOf({ body, rawBody }: Draft, isRows: boolean): Buffer {
  if (rawBody) return rawBody;
  if (body === undefined) return Buffer.alloc(0);
  const asText = (value: unknown) => JSON.stringify(value) ?? "null";
  const isList = isRows && Array.isArray(body);
  return Buffer.from(isList ? (body as unknown[]).map(asText).join("\n") : asText(body));
}

/** The request as a person reads it, for a report. */
export function shownRequest({ number, route, caller, changes, bytes }: FuzzRequest): string {
  const text = JSON.stringify(bytes.subarray(0, 2_000).toString("latin1"));
  const more = bytes.length > 2_000 ? ` and ${bytes.length - 2_000} bytes` : "";
  const changed = changes.length > 0 ? changes.join(", ") : "nothing changed";
  return `request ${number}, ${route} by ${caller} (${changed}): ${text}${more}`;
}
