import { between, seededRandom } from "../../../src/base/random.ts";
import type { FileRef } from "../../../src/protocol/file.ts";

/** The input and the result of a task that turns a file around. The seed says which bytes a file has. */
export type TurnedFile = { readonly seed: number; readonly doc: FileRef };

export type TurningGiven = {
  /** Where the process writes the ids of tasks that it was told are stored. */
  readonly acksPath: string;
  /** The first seed of its own. */
  readonly firstSeed: number;
  /** How many tasks it has open at a time. */
  readonly lanes: number;
};

/** Seeds below this are those of contents that all processes store. */
export const sharedSeeds = 3;

/** From less than a part of a file to three of them. */
export function contentOf(seed: number): Uint8Array<ArrayBuffer> {
  const random = seededRandom(seed + 1);
  const bytes = Buffer.alloc(between(random, 1_000, 600_000));
  for (let at = 0; at + 4 <= bytes.length; at += 4) bytes.writeUInt32LE(random.uint32(), at);
  return bytes;
}

export function turned(content: Uint8Array): Uint8Array {
  return content.toReversed();
}
