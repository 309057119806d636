import { packLayer } from "./tar/pack.ts";

/** Layers of a small image: the upper one changes, deletes and adds. */
export function sampleLayers(version = "1"): Buffer[] {
  const base = packLayer([
    { path: "etc/" },
    { path: "etc/hostname", content: "sample\n" },
    { path: "etc/motd", content: "to be deleted\n" },
    { path: "usr/bin/" },
    { path: "usr/bin/hello", content: "#!/bin/sh\necho hello\n", mode: 0o755 },
    { path: "bin", target: "usr/bin" },
    { path: "var/cache/old/one", content: "1" },
    { path: "var/cache/old/two", content: "2" },
  ]);
  const app = packLayer([
    { path: "etc/.wh.motd" },
    { path: "var/cache/.wh..wh..opq" },
    { path: "var/cache/new", content: "new\n" },
    { path: "app/version", content: `${version}\n` },
    { path: "app/run", type: "Link", target: "usr/bin/hello" },
    // Enough for a download that can be cut in the middle.
    { path: "app/data", content: pseudoRandom(200_000, version) },
  ]);
  return [base, app];
}

/** Bytes that hardly pack, and are the same each time. */
function pseudoRandom(bytes: number, seed: string): Buffer {
  let state = Buffer.from(seed).reduce((sum, byte) => sum + byte, 1);
  const made = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; at++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    made[at] = state >>> 24;
  }
  return made;
}
