import type { Context, MiddlewareHandler } from "hono";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FileAccess, OpenedBy } from "../../files/access.ts";
import type { Files, StoredFile } from "../../files/files.ts";
import type { ByteRange } from "../../files/storage.ts";
import type { SessionService } from "../../sessions/service.ts";
import type { FilesOfTasks } from "../../files/uploads.ts";
import type { Tasks } from "../../tasks/tasks.ts";
import { accountIn, type Admission, isGone, pagedBody } from "../admission/admission.ts";
import type { Uploads } from "../admission/uploads.ts";
import { type Caller, canSee, heldTenant, requireVerb } from "../auth/caller.ts";
import type { Members } from "../auth/members.ts";
import { route, type Route } from "../route.ts";
import { seesContent } from "../serializer.ts";
import { fileSpecs } from "./files.schema.ts";
import { withoutUndefined } from "../api/tasks.ts";

export type FileRouteParts = {
  files: Files & FileAccess & FilesOfTasks;
  tasks: Pick<Tasks, "get">;
  sessions: Pick<SessionService, "get">;
  members: Members;
  uploads: Uploads;
  clock: Clock;
  log: Logger;
};

/** The path of files for callers without credentials, who have an access instead. */
export const openFilesPath = "/v1/files/";

/**
 * Types that browsers show and that run nothing. All others are downloads: a page that someone has uploaded
 * must never run as one of this server's.
 */
const shownTypes = new Set([
  "image/png",
  "image/jpeg",
  "image/gif",
  "image/webp",
  "image/avif",
  "image/bmp",
  "audio/mpeg",
  "audio/mp4",
  "audio/aac",
  "audio/ogg",
  "audio/wav",
  "audio/webm",
  "audio/flac",
  "video/mp4",
  "video/ogg",
  "video/webm",
  "video/quicktime",
  "application/pdf",
  "text/plain",
]);
/** Shown as plain text. */
const textTypes = new Set(["text/markdown", "text/csv", "application/json"]);

/** Admits readers by their addresses; what they may read is what their access says. */
export function fileAdmission(files: FileAccess, { unknown }: Admission): MiddlewareHandler {
  return (c, next) =>
    unknown(c, async () => {
      const [access = ""] = c.req.path.slice(openFilesPath.length).split("/", 1);
      const opened = await files.check(access);
      if (!opened) throw noFile();
      const { tenant } = opened;
      c.set("opened", opened);
      c.set("caller", { kind: "server", tenant, keyId: "files", keyName: "files", verbs: none });
      await next();
    });
}

const none: ReadonlySet<never> = new Set<never>();

/** Files of conversations and of tasks: uploads, and downloads for members and for readers of payloads. */
export function fileRoutes(parts: FileRouteParts): Route[] {
  const { files, tasks, sessions, members, uploads, clock, log } = parts;

  const whileUploading = <Result>(c: Context, upload: () => Promise<Result>) =>
    uploads.run(c, async () => {
      try {
        return await upload();
      } catch (error) {
        // The rest isn't read, so that nothing else can come on this connection.
        c.header("Connection", "close");
        if (error instanceof FlotillaError || !isGone(c)) throw error;
        throw new FlotillaError("closed", "the client has hung up", { cause: error });
      }
    });

  /** A session that the caller may not see, of another tenant or not there: all are not found. */
  const check = async (caller: Caller, sessionId: string) => {
    await members.check(caller, sessionId);
    // That of a caller who may use all sessions of its tenant reads none.
    await sessions.get(caller.tenant, sessionId, { withoutMetadata: true });
  };
  /** Who sees only the shapes of what is said gets no files either. */
  const checkContent = async (caller: Caller, sessionId: string) => {
    await check(caller, sessionId);
    if (seesContent(caller) || (await members.isMember(caller, sessionId))) return;
    throw new FlotillaError(
      "forbidden",
      "files are for members, and for callers with payloads:read",
    );
  };

  const answer = async (
    c: Context,
    of: { readonly tenant: string; readonly hash: string } & (
      | { readonly sessionId: string }
      | { readonly taskId: string }
    ),
    caching: string,
  ) => {
    const { tenant, hash } = of;
    const isOfTask = "taskId" in of;
    const ownerId = isOfTask ? of.taskId : of.sessionId;
    const owned = isOfTask ? files.ofTasks : files;
    const file = /^[0-9a-f]{64}$/.test(hash) ? await owned.find(ownerId, hash) : undefined;
    if (!file || file.tenant !== tenant) throw noFile(isOfTask ? "task" : "session");
    const etag = `"${hash}"`;
    const headers: Record<string, string> = {
      ...headersOf(file),
      ETag: etag,
      "Accept-Ranges": "bytes",
      "Cache-Control": `private, ${caching}`,
    };
    if (namesTag(c.req.header("if-none-match"), etag)) return { status: 304, body: null, headers };
    const range = rangeOf(c, file, etag);
    if (range === "unsatisfiable") {
      return { status: 416, body: "", headers: { "Content-Range": `bytes */${file.size}` } };
    }
    const { from, to } = range ?? { from: 0, to: file.size - 1 };
    headers["Content-Length"] = String(to - from + 1);
    if (range) headers["Content-Range"] = `bytes ${from}-${to}/${file.size}`;
    const pieces = files.read(file, { from, to });
    const nextPage = async () => {
      const { value, done } = await pieces.next();
      return done ? undefined : value;
    };
    const onError = (error: unknown) =>
      log.warn(
        { [isOfTask ? "task" : "session"]: ownerId, error: messageOf(error) },
        "file not sent to its end",
      );
    return {
      status: range ? 206 : 200,
      body: await pagedBody(c, nextPage, onError),
      headers,
    };
  };
  type Answered = { status: 200; body: string; headers: Record<string, string> };

  return [
    route(fileSpecs.upload).to(async ({ caller, params: { sessionId }, query, context }) => {
      await check(caller, sessionId);
      const { filename, size = lengthOf(context), sha256 } = query;
      const mediaType = context.req.header("content-type");
      const body = await whileUploading(context, () =>
        files.upload(
          caller.tenant,
          sessionId,
          (context.req.raw.body ?? []) as AsyncIterable<Uint8Array>,
          withoutUndefined({ mediaType, filename, size, hash: sha256 }),
        ),
      );
      return { status: 201, body: body as typeof body & { size: number } };
    }),
    route(fileSpecs.download).to(async ({ caller, params: { sessionId, hash }, context }) => {
      await checkContent(caller, sessionId);
      // The next user of this browser may not be a member: it asks again, and is answered by 304.
      const of = { tenant: caller.tenant, sessionId, hash };
      const { headers, ...rest } = await answer(context, of, "no-cache");
      const own = { ...headers, "Cross-Origin-Resource-Policy": "same-origin" };
      return { ...rest, headers: own } as Answered;
    }),
    route(fileSpecs.access).to(async ({ caller, params: { sessionId } }) => {
      await checkContent(caller, sessionId);
      const { access, expiresAtMs } = await files.grant(caller.tenant, sessionId);
      return { status: 200, body: { path: `${openFilesPath}${access}/`, expiresAtMs } };
    }),
    route(fileSpecs.uploadForTasks).to(async ({ caller, query, context }) => {
      const { filename, size = lengthOf(context), sha256 } = query;
      const tenant = heldTenant(caller, query.tenant) ?? "default";
      const mediaType = context.req.header("content-type");
      const body = await whileUploading(context, () =>
        files.uploads.upload(
          tenant,
          files.uploadsOf(accountIn(context), tenant),
          (context.req.raw.body ?? []) as AsyncIterable<Uint8Array>,
          withoutUndefined({ mediaType, filename, size, hash: sha256 }),
        ),
      );
      return { status: 201, body: body as typeof body & { size: number } };
    }),
    route(fileSpecs.ofTask).to(async ({ caller, params: { taskId, hash }, context }) => {
      const task = await tasks.get(taskId);
      if (!task || !canSee(caller, task)) throw noFile("task");
      requireVerb(caller, "payloads:read");
      // An id may be another name of its task.
      const of = { tenant: task.tenant, taskId: task.taskId, hash };
      const { headers, ...rest } = await answer(context, of, "no-cache");
      const own = { ...headers, "Cross-Origin-Resource-Policy": "same-origin" };
      return { ...rest, headers: own } as Answered;
    }),
    route(fileSpecs.open).to(async ({ params: { hash }, context }) => {
      const { tenant, sessionId, expiresAtMs } = context.get("opened") as OpenedBy;
      const leftSeconds = Math.max(0, Math.floor((expiresAtMs - clock.now()) / 1_000));
      const of = { tenant, sessionId, hash };
      return (await answer(context, of, `max-age=${leftSeconds}, immutable`)) as Answered;
    }),
  ];
}

/** What a browser may do with the bytes. */
function headersOf({ mediaType, filename }: StoredFile): Record<string, string> {
  const isText = mediaType === "text/plain" || textTypes.has(mediaType);
  const isShown = isText || shownTypes.has(mediaType);
  const type = isText
    ? "text/plain; charset=utf-8"
    : isShown
      ? mediaType
      : "application/octet-stream";
  // The viewer of Chromium for PDF doesn't start in a sandbox. PDF runs nothing in the page's origin.
  const sandbox = mediaType === "application/pdf" ? "" : "; sandbox";
  return {
    "Content-Type": type,
    "Content-Disposition": dispositionOf(isShown ? "inline" : "attachment", filename),
    "Content-Security-Policy": `default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'${sandbox}`,
  };
}

/** With the name as RFC 6266 writes it, and in ASCII for programs that don't know it. */
function dispositionOf(what: "inline" | "attachment", filename: string | undefined): string {
  if (filename === undefined) return what;
  const plain = filename.replaceAll(/[^\x20-\x7e]|["\\%/]/g, "_");
  const encoded = encodeURIComponent(filename.toWellFormed()).replaceAll(
    /['()*]/g,
    (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `${what}; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

/** The bytes that are asked for; undefined for all of them, as for what this doesn't understand. */
function rangeOf(
  c: Context,
  { size }: StoredFile,
  etag: string,
): ByteRange | "unsatisfiable" | undefined {
  const asked = c.req.header("range");
  const condition = c.req.header("if-range");
  if (asked === undefined || (condition !== undefined && condition !== etag)) return undefined;
  const [, first, last] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(asked.trim()) ?? [];
  if (first === undefined || last === undefined || (first === "" && last === "")) return undefined;
  if (first === "") {
    const count = Number(last);
    return count === 0 ? "unsatisfiable" : { from: Math.max(0, size - count), to: size - 1 };
  }
  const from = Number(first);
  const to = last === "" ? size - 1 : Math.min(Number(last), size - 1);
  if (last !== "" && Number(last) < from) return undefined;
  return from >= size ? "unsatisfiable" : { from, to };
}

function namesTag(header: string | undefined, etag: string): boolean {
  const tags = header?.split(",").map((each) => each.trim().replace(/^W\//, "")) ?? [];
  return tags.includes(etag) || tags.includes("*");
}

function lengthOf(c: Context): number | undefined {
  const given = c.req.header("content-length");
  return given !== undefined && /^\d{1,15}$/.test(given) ? Number(given) : undefined;
}

function noFile(where: "session" | "task" = "session"): FlotillaError {
  return new FlotillaError("not_found", `there is no such file in this ${where}`);
}
