import { join } from "node:path";
import { type Digest, digestOf, hexOf } from "../disk/digest.ts";

/** Where things are. Names say what is in them, so that doing something again finds what was done. */
export type Places = {
  readonly home: string;
  readonly blobs: string;
  readonly images: string;
  readonly snapshots: string;
  readonly metadata: string;
  readonly marker: string;
  readonly probe: string;
  readonly blob: (digest: Digest) => string;
  readonly image: (imageId: string) => string;
  readonly snapshot: (snapshotId: string) => string;
};

export function placesIn(home: string): Places {
  const blobs = join(home, "blobs");
  const images = join(home, "images");
  const snapshots = join(home, "snapshots");
  return {
    home,
    blobs,
    images,
    snapshots,
    metadata: join(home, "metadata.db"),
    marker: join(home, "pool.json"),
    probe: join(home, "probe"),
    blob: (digest) => join(blobs, hexOf(digest)),
    image: (imageId) => join(images, imageId),
    snapshot: (snapshotId) => join(snapshots, snapshotId),
  };
}

/** An image is what its manifest says. */
export function imageIdOf(manifest: Digest): string {
  return hexOf(manifest).slice(0, 32);
}

/** Each name has a snapshot of its own, and another when it comes to mean another image. */
export function snapshotIdOf(reference: string, imageId: string): string {
  return hexOf(digestOf(`${reference}\n${imageId}`)).slice(0, 32);
}
