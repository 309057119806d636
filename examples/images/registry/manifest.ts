import { z } from "zod";
import { type Digest, isDigest } from "../disk/digest.ts";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";

export const manifestType = "application/vnd.oci.image.manifest.v1+json";
export const layerType = "application/vnd.oci.image.layer.v1.tar+gzip";

export const digest = z.custom<Digest>(isDigest, "a digest is sha256: and 64 hex digits");

export const layer = z.object({
  mediaType: z.literal(layerType),
  digest,
  size: z.int().min(0),
});
export type Layer = z.infer<typeof layer>;

const manifest = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.literal(manifestType),
  layers: z.array(layer).min(1),
});
export type Manifest = z.infer<typeof manifest>;

/** What an image consists of, the lowest layer first. */
export function parseManifest(text: string, limits: ImageLimits): Manifest {
  let parsed: Manifest;
  try {
    parsed = manifest.parse(JSON.parse(text));
  } catch (cause) {
    throw new Refused("bad_manifest", "the manifest isn't one that we know", { cause });
  }
  if (parsed.layers.length > limits.layers) {
    throw new Refused("too_many", `the image has more than ${limits.layers} layers`);
  }
  for (const { size } of parsed.layers) checkSize(size, limits);
  return parsed;
}

export function checkSize(bytes: number, { blobBytes }: ImageLimits): void {
  if (bytes <= blobBytes) return;
  throw new Refused("too_large", `a layer has ${bytes} bytes, more than ${blobBytes}`);
}

const name = /^[a-z0-9]+(?:[._/-][a-z0-9]+)*$/;
const tag = /^\w[\w.-]{0,127}$/;

/** A name as people write it: `repository:tag`. */
export function parseReference(reference: string): { repository: string; tag: string } {
  const at = reference.lastIndexOf(":");
  const found = { repository: reference.slice(0, at), tag: reference.slice(at + 1) };
  if (at > 0 && name.test(found.repository) && tag.test(found.tag)) return found;
  throw new Refused("bad_manifest", `"${reference}" isn't a repository and a tag`);
}
