import { retryAfter } from "flotilla";
import { type Digest, digestOf } from "../disk/digest.ts";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";
import { type Manifest, manifestType, parseManifest, parseReference } from "./manifest.ts";

/** What a name stands for at this moment. */
export type Resolved = { readonly manifestDigest: Digest; readonly manifest: Manifest };

export async function resolve(
  registry: string,
  reference: string,
  { limits, signal }: { limits: ImageLimits; signal: AbortSignal },
): Promise<Resolved> {
  const { repository, tag } = parseReference(reference);
  const url = `${registry}/v2/${repository}/manifests/${tag}`;
  const answer = await fetch(url, { signal, headers: { accept: manifestType } });
  await checkStatus(answer, [200]);
  const text = await textOf(answer, limits.manifestBytes);
  const manifestDigest = digestOf(text);
  const promised = answer.headers.get("docker-content-digest");
  if (promised !== null && promised !== manifestDigest) {
    throw new Error(`the manifest of ${reference} came damaged`);
  }
  return { manifestDigest, manifest: parseManifest(text, limits) };
}

/** What isn't there won't come by asking again; what is only in trouble may, when it says so. */
export async function checkStatus(answer: Response, expected: readonly number[]): Promise<void> {
  const { status, url } = answer;
  if (expected.includes(status)) return;
  await answer.body?.cancel();
  const message = `${url} answered ${status}`;
  if (status === 429 || status === 408 || status >= 500) {
    const seconds = Number(answer.headers.get("retry-after") ?? 0);
    if (seconds > 0 && seconds <= 3_600) throw retryAfter(seconds * 1_000, message);
    throw new Error(message);
  }
  throw new Refused("not_found", message);
}

/** Never more than was allowed, whatever length was promised. */
async function textOf(answer: Response, bytesMost: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
    bytes += chunk.length;
    if (bytes > bytesMost) {
      throw new Refused("too_large", `a manifest has more than ${bytesMost} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
