import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { createWatched, type Watching } from "./watched.ts";

/** Makes the watches of one kind: the same for the same id, each time. */
export type Watch = <View>(
  get: (id: string) => Promise<View>,
  hasEnded: (view: View) => boolean,
) => (id: string) => Watching<View>;

// Those that nobody listens to are let go of beyond so many.
const keptMost = 500;

export function createWatch(parts: { clock: Clock; random: Random }): {
  watch: Watch;
  end(error: FlotillaError): void;
} {
  const enders: ((error: FlotillaError) => void)[] = [];
  return {
    watch<View>(get: (id: string) => Promise<View>, hasEnded: (view: View) => boolean) {
      const all = new Map<string, Watching<View>>();
      enders.push((error) => {
        for (const each of all.values()) each.end(error);
      });
      return (id: string) => {
        const found = all.get(id) ?? createWatched({ ...parts, look: () => get(id), hasEnded });
        all.delete(id);
        all.set(id, found);
        if (all.size > keptMost) {
          for (const [old, { get: look }] of all) {
            if (all.size > keptMost && look().status === "idle" && old !== id) all.delete(old);
          }
        }
        return found;
      };
    },
    end(error) {
      for (const each of enders) each(error);
    },
  };
}
