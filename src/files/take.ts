import crypto from "node:crypto";
import { FlotillaError } from "../base/errors.ts";
import { checkText } from "../base/options.ts";
import { fileHashOf, fileUrl, maxInlineBodyBytes, maxInlineBytes } from "../protocol/file.ts";
import type { Part } from "../protocol/message.ts";

// What a message says about files, without storing anything yet.

/** How many files a message may carry within itself. More are uploaded before it is sent. */
const maxInlineFiles = 20;

/** The type and the name that a file was given. Neither says anything about its bytes. */
export type FileLabel = { readonly mediaType: string; readonly filename?: string };

export type InlineFile = FileLabel & { readonly hash: string; readonly bytes: Uint8Array };

/** A message's parts as they are stored, and the files that go with them. */
export type TakenFiles = {
  readonly parts: readonly Part[];
  /** Each content once. */
  readonly inline: readonly InlineFile[];
  /** The hashes of files that were uploaded before. */
  readonly references: readonly string[];
};

const maxNameChars = 255;
const maxTypeChars = 100;
export const unknownType = "application/octet-stream";

/** Takes data URLs out of the parts of a message. Undefined if it has no files of ours. */
export function takeFiles(parts: unknown): TakenFiles | undefined {
  if (!Array.isArray(parts) || !parts.some(isOurs)) return undefined;
  const inline = new Map<string, InlineFile>();
  const references = new Set<string>();
  let left = maxInlineBytes;
  let count = 0;
  const taken = (parts as readonly Part[]).map((part) => {
    if (!isOurs(part)) return part;
    const hash = fileHashOf(part);
    if (hash !== undefined) {
      references.add(hash);
      return part;
    }
    const url = part["url"] as string;
    if (!/^data:/i.test(url)) {
      throw invalid(
        `the \`url\` of a stored file is "flotilla-file:" and 64 hexadecimal digits, as an upload has returned it`,
      );
    }
    const { bytes, mediaType } = decodeDataUrl(url, left);
    left -= bytes.length;
    if (++count > maxInlineFiles) {
      throw new FlotillaError(
        "payload_too_large",
        `a message may have ${maxInlineFiles} files within itself: upload them first`,
        { details: { maxInlineFiles } },
      );
    }
    const label = labelOf(part["mediaType"] ?? mediaType, part["filename"]);
    const digest = crypto.hash("sha256", bytes, "hex");
    if (!inline.has(digest)) inline.set(digest, { hash: digest, bytes, ...label });
    return { ...part, url: fileUrl(digest), ...label, size: bytes.length };
  });
  return { parts: taken, inline: [...inline.values()], references: [...references] };
}

/** A type and a name as they are stored. A type that is none counts as unknown. */
export function labelOf(mediaType: unknown, filename: unknown): FileLabel {
  const type = typeof mediaType === "string" ? mediaType.split(";")[0]!.trim().toLowerCase() : "";
  const isType =
    type.length <= maxTypeChars &&
    /^[a-z0-9][a-z0-9!#$&^_.+-]*\/[a-z0-9][a-z0-9!#$&^_.+-]*$/.test(type);
  if (filename === undefined || filename === null || filename === "") {
    return { mediaType: isType ? type : unknownType };
  }
  checkText("filename", filename, { max: maxNameChars });
  return { mediaType: isType ? type : unknownType, filename: filename as string };
}

function isOurs(part: unknown): boolean {
  const { type, url } = Object(part) as Partial<Part>;
  return type === "file" && typeof url === "string" && /^(?:data|flotilla-file):/i.test(url);
}

function decodeDataUrl(url: string, maxBytes: number): { bytes: Uint8Array; mediaType: string } {
  const comma = url.indexOf(",");
  if (comma === -1 || comma > 1_000) throw invalid("a data URL has a comma before its data");
  const [mediaType = "", ...parameters] = url.slice("data:".length, comma).split(";");
  const isBase64 = parameters.at(-1)?.trim().toLowerCase() === "base64";
  const data = url.slice(comma + 1);
  if (isBase64 ? data.length > maxInlineBodyBytes : data.length > maxInlineBytes * 3) {
    throw tooMuchInline();
  }
  const bytes = isBase64 ? decodeBase64(data) : decodePercents(data);
  if (bytes.length > maxBytes) throw tooMuchInline();
  if (bytes.length === 0) throw emptyFile();
  return { bytes, mediaType };
}

function decodeBase64(data: string): Uint8Array {
  const bytes = Buffer.from(data, "base64");
  // Node leaves out what isn't base64, and reads on: a cut or garbled URL must not become a file.
  const digits = data.replace(/={1,2}$/, "");
  if (/^[A-Za-z0-9+/]*$/.test(digits) && digits.length === Math.ceil((bytes.length * 4) / 3)) {
    return bytes;
  }
  throw invalid("the data URL of a file isn't base64");
}

function decodePercents(data: string): Uint8Array {
  try {
    return Buffer.from(decodeURIComponent(data), "utf8");
  } catch (error) {
    throw new FlotillaError("invalid_input", "the data URL of a file can't be decoded", {
      cause: error,
    });
  }
}

export function emptyFile(): FlotillaError {
  return invalid("the file is empty: there is nothing to store");
}

function tooMuchInline(): FlotillaError {
  return new FlotillaError(
    "payload_too_large",
    `the files within a message take more than ${maxInlineBytes} bytes: upload them first`,
    { details: { maxBytes: maxInlineBytes } },
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_input", message);
}
