import { createHash } from "node:crypto";
import { readdir, readFile, stat } from "node:fs/promises";
import { join, relative, resolve, sep } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Context, Hono } from "hono";
import { getMimeType } from "hono/utils/mime";
import { FlotillaError } from "../base/errors.ts";
import { dashboardFolder } from "../base/package-files.ts";
import { sharedBody } from "./admission/admission.ts";

/** A static page in addition to the routes: its prefix, and the answer for a path below it. */
export type StaticPage = {
  readonly prefix: string;
  answer(c: Context): Promise<Response>;
};

/** A file of a page, as it is sent. */
export type PageFile = {
  readonly type: string;
  readonly etag: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Present where compression is worth it. */
  readonly gzipped?: Uint8Array<ArrayBuffer>;
  /** Its name changes with its content, so browsers may cache it for ever. */
  readonly isFixed: boolean;
};

/** A built page, by the paths of its files within the folder. */
export type PageFolder = {
  readonly files: ReadonlyMap<string, PageFile>;
  readonly index: PageFile;
};

/** Limits of what is served from memory. Larger pages belong on a web server of their own. */
const maxFiles = 2_000;
const maxBytes = 64 * 1024 ** 2;
const gzipFromBytes = 1_024;
const compressible = /^(?:text\/|application\/(?:javascript|json|manifest\+json)|image\/svg)/;
// Vite's names: `assets/index-BbUE0B6c.js`. In the dashboard's folder all files have such names.
const hashedName = /^assets\/(?:.*\/)?[^/]+-(?=[\w-]*[A-Z0-9])[\w-]{8}\.\w+(?:\.map)?$/;

// Even an injected script may only talk to this server.
const policy = [
  "default-src 'self'",
  "connect-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
];

const headers: Readonly<Record<string, string>> = {
  "Content-Security-Policy": [...policy, "img-src 'self' data:"].join("; "),
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
};

/** Those of the dashboard, which has no need of images from data nor of scripts made from text. */
export const dashboardHeaders: Readonly<Record<string, string>> = {
  ...headers,
  "Content-Security-Policy": [
    ...policy,
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; "),
};

const fixedCache = "public, max-age=31536000, immutable";

/** Reads the pages that the config names, so that a missing folder is reported before the first request. */
export async function openPages(
  pages: Readonly<Record<string, string>> = {},
): Promise<StaticPage[]> {
  return Promise.all(Object.entries(pages).map(([prefix, folder]) => openPage(prefix, folder)));
}

/** Mounts pages before the routes: they need no credentials, and set their own cache headers. */
export function mountPages(app: Hono, pages: readonly StaticPage[]): void {
  for (const page of pages) {
    // Links within the page are relative to its folder, so its URL needs the trailing slash.
    app.get(page.prefix, (c) => {
      const location = `${page.prefix}/${new URL(c.req.url).search}`;
      const moved = { ...headers, Location: location, "Cache-Control": "no-cache" };
      return new Response(null, { status: 308, headers: moved });
    });
    app.all(`${page.prefix}/*`, (c) => page.answer(c));
  }
}

async function openPage(prefix: string, configured: string): Promise<StaticPage> {
  const folder = resolve(configured);
  let version = await versionOf(folder).catch(() => "");
  let page = await readPageFolder(folder);

  /** Shows a new build without a restart; while it is being written, the old one stays. */
  const reload = async (): Promise<void> => {
    const now = await versionOf(folder).catch(() => version);
    if (now === version) return;
    const read = await readPageFolder(folder).catch(() => undefined);
    if (read) [page, version] = [read, now];
  };

  return {
    prefix,
    async answer(c) {
      const { method } = c.req;
      if (method !== "GET" && method !== "HEAD") {
        return new Response(null, { status: 405, headers: { ...headers, Allow: "GET, HEAD" } });
      }
      const path = pathWithin(prefix, new URL(c.req.url).pathname);
      if (path === undefined) return notFound();
      if (path === "" || !page.files.has(path)) await reload();
      const file = find(page, path);
      return file ? sendFile(c, file) : notFound();
    },
  };
}

/** The decoded path below the prefix; undefined where no file can have that name. */
function pathWithin(prefix: string, pathname: string): string | undefined {
  if (!pathname.startsWith(`${prefix}/`)) return undefined;
  try {
    return decodeURIComponent(pathname.slice(prefix.length + 1));
  } catch {
    return undefined;
  }
}

/** A path that looks like a file must exist; any other is a client-side route of the page. */
function find({ files, index }: PageFolder, path: string): PageFile | undefined {
  const file = files.get(path);
  if (file) return file;
  const isFile = path.startsWith("assets/") || /[.\\\0]/.test(path);
  return isFile ? undefined : index;
}

/** Sends a file of a page, or 304 to a browser that has it. */
export function sendFile(c: Context, file: PageFile, own = headers): Response {
  const takesGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i;
  const mayZip = takesGzip.test(c.req.header("accept-encoding") ?? "") && !isRecoded(c);
  const zipped = mayZip ? file.gzipped : undefined;
  const bytes = zipped ?? file.bytes;
  const etag = zipped ? file.etag.replace(/"$/, '-gz"') : file.etag;
  const sent: Record<string, string> = {
    ...own,
    ETag: etag,
    "Cache-Control": file.isFixed ? fixedCache : "no-cache",
    ...(file.gzipped && { Vary: "Accept-Encoding" }),
  };
  if (matchesEtag(c.req.header("if-none-match"), etag)) {
    return new Response(null, { status: 304, headers: sent });
  }
  sent["Content-Type"] = file.type;
  sent["Content-Length"] = String(bytes.length);
  if (zipped) sent["Content-Encoding"] = "gzip";
  return new Response(c.req.method === "HEAD" ? null : sharedBody(c, bytes), { headers: sent });
}

/** Whether the host app compresses answers itself, and drops what says that they are already. */
function isRecoded({ env }: { readonly env: unknown }): boolean {
  return (env as { readonly isRecoded?: boolean } | undefined)?.isRecoded === true;
}

function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const tags = header.split(",").map((each) => each.trim().replace(/^W\//, ""));
  return tags.includes("*") || tags.includes(etag);
}

function notFound(): Response {
  const plain = { "Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store" };
  return new Response("There is no such file.\n", {
    status: 404,
    headers: { ...headers, ...plain },
  });
}

/**
 * Reads a built page into memory. A request only looks up a name in a map, so no path can lead out of
 * the folder. Symbolic links and hidden files are left out for the same reason.
 */
export async function readPageFolder(folder: string): Promise<PageFolder> {
  const paths = await namesIn(folder);
  if (paths.length > maxFiles)
    throw tooLarge(folder, `${paths.length} files, more than ${maxFiles}`);
  const files = new Map<string, PageFile>();
  let total = 0;
  for (const path of paths) {
    const full = join(folder, path);
    total += (await stat(full)).size;
    if (total > maxBytes) throw tooLarge(folder, `more than ${maxBytes} bytes`);
    const name = path.split(sep).join("/");
    files.set(name, await toPageFile(name, await readFile(full)));
  }
  const index = files.get("index.html");
  if (!index) throw invalid(`there is no index.html in ${folder}: build the page first`);
  return { files, index };
}

/** Differs between builds of a page, and between an unfinished and a finished one. */
async function versionOf(folder: string): Promise<string> {
  const { mtimeMs, size, ino } = await stat(join(folder, "index.html"));
  const assets = await stat(join(folder, "assets")).catch(() => undefined);
  return [mtimeMs, size, ino, assets?.mtimeMs, assets?.ino].join(" ");
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    const found = await readdir(folder, { recursive: true, withFileTypes: true });
    return found
      .filter((each) => each.isFile())
      .map((each) => join(relative(folder, each.parentPath), each.name))
      .filter((path) => !path.split(sep).some((part) => part.startsWith(".")));
  } catch (error) {
    throw invalid(`the folder ${folder} can't be read: build the page first`, { cause: error });
  }
}

/** A file as it is sent, zipped where that is worth it. */
export async function toPageFile(name: string, content: Uint8Array): Promise<PageFile> {
  const bytes = new Uint8Array(content);
  const type = getMimeType(name) ?? "application/octet-stream";
  const worth = bytes.length >= gzipFromBytes && compressible.test(type);
  const hash = createHash("sha256").update(bytes).digest("base64url").slice(0, 27);
  return {
    type,
    etag: `"${hash}"`,
    bytes,
    ...(worth && { gzipped: new Uint8Array(await promisify(gzip)(bytes)) }),
    isFixed: hashedName.test(name) || name.startsWith(`${dashboardFolder}/`),
  };
}

function tooLarge(folder: string, what: string): FlotillaError {
  return invalid(`the page in ${folder} has ${what}: serve it from a web server of its own`);
}

function invalid(message: string, options?: ErrorOptions): FlotillaError {
  return new FlotillaError("invalid_option", `server.pages: ${message}`, options);
}
