import { resolve } from "node:path";
import type { Context, Hono } from "hono";
import { sharedBody } from "./admission/admission.ts";
import { type PageFile, type PageFolder, readPageFolder, versionOf } from "./folder.ts";

/** A page that a server has beside its routes: where it is, and what is sent for a path in it. */
export type Page = {
  readonly prefix: string;
  answer(c: Context): Promise<Response>;
};

// What a page may do, even if somebody brought their own script into it: talk to this server, and
// nothing else.
const policy = [
  "default-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join("; ");

const headers: Readonly<Record<string, string>> = {
  "Content-Security-Policy": policy,
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
};

const fixedCache = "public, max-age=31536000, immutable";

/** Reads the pages that a config names, so that a folder that isn't there is known before anybody asks. */
export async function openPages(pages: Readonly<Record<string, string>> = {}): Promise<Page[]> {
  return Promise.all(Object.entries(pages).map(([prefix, folder]) => openPage(prefix, folder)));
}

async function openPage(prefix: string, given: string): Promise<Page> {
  const folder = resolve(given);
  let version = await versionOf(folder).catch(() => "");
  let page = await readPageFolder(folder);

  /** A page that was built anew is shown without a restart; while it is being built, the old one is. */
  const renew = async (): Promise<void> => {
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
      if (path === "" || !page.files.has(path)) await renew();
      const file = find(page, path);
      return file ? send(c, file) : notFound();
    },
  };
}

/** Puts pages in front of the routes: they need no credentials, and say themselves how long they keep. */
export function mountPages(app: Hono, pages: readonly Page[]): void {
  for (const page of pages) {
    // Links within the page are relative to its folder, which only the slash makes one.
    app.get(page.prefix, (c) => {
      const location = `${page.prefix}/${new URL(c.req.url).search}`;
      const moved = { ...headers, Location: location, "Cache-Control": "no-cache" };
      return new Response(null, { status: 308, headers: moved });
    });
    app.all(`${page.prefix}/*`, (c) => page.answer(c));
  }
}

/** The path that was asked for, as files are named; undefined where no file can have that name. */
function pathWithin(prefix: string, pathname: string): string | undefined {
  if (!pathname.startsWith(`${prefix}/`)) return undefined;
  try {
    return decodeURIComponent(pathname.slice(prefix.length + 1));
  } catch {
    return undefined;
  }
}

/** What has the form of a file must be there; anything else is a place within the page. */
function find({ files, index }: PageFolder, path: string): PageFile | undefined {
  const file = files.get(path);
  if (file) return file;
  const isFile = path.startsWith("assets/") || /[.\\\0]/.test(path);
  return isFile ? undefined : index;
}

function send(c: Context, file: PageFile): Response {
  const takesGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i;
  const zipped = takesGzip.test(c.req.header("accept-encoding") ?? "") ? file.gzipped : undefined;
  const bytes = zipped ?? file.bytes;
  const etag = zipped ? file.etag.replace(/"$/, '-gz"') : file.etag;
  const sent: Record<string, string> = {
    ...headers,
    ETag: etag,
    "Cache-Control": file.isFixed ? fixedCache : "no-cache",
    ...(file.gzipped && { Vary: "Accept-Encoding" }),
  };
  if (isKnown(c.req.header("if-none-match"), etag)) {
    return new Response(null, { status: 304, headers: sent });
  }
  sent["Content-Type"] = file.type;
  sent["Content-Length"] = String(bytes.length);
  if (zipped) sent["Content-Encoding"] = "gzip";
  return new Response(c.req.method === "HEAD" ? null : sharedBody(c, bytes), { headers: sent });
}

function isKnown(header: string | undefined, etag: string): boolean {
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
