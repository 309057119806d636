import { createHash } from "node:crypto";
import { readdir, readFile, stat } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { getMimeType } from "hono/utils/mime";
import { FlotillaError } from "../base/errors.ts";

/** A file of a page, as it is sent. */
export type PageFile = {
  readonly type: string;
  readonly etag: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The same compressed, where that is worth it. */
  readonly gzipped?: Uint8Array<ArrayBuffer>;
  /** Its name changes with its content, so that nobody needs to ask for it again. */
  readonly isFixed: boolean;
};

/** A built page, by the paths of its files within the folder. */
export type PageFolder = {
  readonly files: ReadonlyMap<string, PageFile>;
  readonly index: PageFile;
};

/** What may be served out of memory. More belongs behind a web server of its own. */
const filesMost = 2_000;
const bytesMost = 64 * 1024 ** 2;
const gzipFromBytes = 1_024;
const compressible = /^(?:text\/|application\/(?:javascript|json|manifest\+json)|image\/svg)/;

// Vite's names: `assets/index-BbUE0B6c.js`.
const hashedName = /^assets\/(?:.*\/)?[^/]+-(?=[\w-]*[A-Z0-9])[\w-]{8}\.\w+(?:\.map)?$/;

/**
 * Reads a built page into memory. Requests then only look up names in a table, so that there is no path
 * by which one of them could lead out of the folder. Links and hidden files are left out for the same
 * reason.
 */
export async function readPageFolder(folder: string): Promise<PageFolder> {
  const paths = await namesIn(folder);
  if (paths.length > filesMost) throw tooLarge(folder, `${paths.length} files, not ${filesMost}`);
  const files = new Map<string, PageFile>();
  let total = 0;
  for (const path of paths) {
    const full = join(folder, path);
    total += (await stat(full)).size;
    if (total > bytesMost) throw tooLarge(folder, `more than ${bytesMost} bytes`);
    const name = path.split(sep).join("/");
    files.set(name, await toFile(name, await readFile(full)));
  }
  const index = files.get("index.html");
  if (!index) throw invalid(`there is no index.html in ${folder}: build the page first`);
  return { files, index };
}

/** Tells one build of a page from the next, and one that is being written from one that is whole. */
export async function versionOf(folder: string): Promise<string> {
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

async function toFile(name: string, content: Uint8Array): Promise<PageFile> {
  const bytes = new Uint8Array(content);
  const type = getMimeType(name) ?? "application/octet-stream";
  const worth = bytes.length >= gzipFromBytes && compressible.test(type);
  const hash = createHash("sha256").update(bytes).digest("base64url").slice(0, 27);
  return {
    type,
    etag: `"${hash}"`,
    bytes,
    ...(worth && { gzipped: new Uint8Array(await promisify(gzip)(bytes)) }),
    isFixed: hashedName.test(name),
  };
}

function tooLarge(folder: string, what: string): FlotillaError {
  return invalid(`the page in ${folder} has ${what}: serve it from a web server of its own`);
}

function invalid(message: string, options?: ErrorOptions): FlotillaError {
  return new FlotillaError("invalid_option", `server.pages: ${message}`, options);
}
