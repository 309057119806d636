import { fileHashOf, type FilePart } from "../protocol/file.ts";
import type { OpenedFiles, UploadOptions } from "./calls.ts";
import type { Http } from "./http.ts";

/** The part of the client that isn't loaded with the page but right after, once there is a connection. */
export { createAssembler } from "../protocol/assembler/assembler.ts";
export { readEvents } from "./session/reader.ts";

// As long as the server gives it.
const uploadTimeoutMs = 20 * 60_000;

/** `at` is the path of the session. */
export function uploadFile(
  http: Http,
  at: string,
  content: Blob | Uint8Array<ArrayBuffer>,
  { filename, mediaType }: UploadOptions = {},
): Promise<FilePart> {
  const { name, type } = content as { readonly name?: string; readonly type?: string };
  return http("POST", `${at}/files`, {
    query: { filename: filename ?? name },
    blob: new Blob([content], { type: mediaType || type || "application/octet-stream" }),
    timeoutMs: uploadTimeoutMs,
  });
}

/** `url` is that of the server. */
export async function openFiles(http: Http, at: string, url: () => string): Promise<OpenedFiles> {
  type Access = { readonly path: string; readonly expiresAtMs: number };
  const { path, expiresAtMs } = await http<Access>("POST", `${at}/file-access`);
  return {
    expiresAtMs,
    urlOf(part) {
      const hash = fileHashOf(part);
      return hash && url() + path + hash;
    },
  };
}
