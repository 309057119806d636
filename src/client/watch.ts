import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { createWatched, type Watching } from "./watched.ts";

/** Makes the watches of one kind: the same for the same id, each time. */
export type Watch = <View>(
  get: (id: string) => Promise<View>,
  hasEnded: (view: View) => boolean,
) => (id: string) => Watching<View>;

export function createWatch(parts: { clock: Clock; random: Random }): {
  watch: Watch;
  end(error: FlotillaError): void;
} {
  let over: FlotillaError | undefined;
  const enders: (() => void)[] = [];
  return {
    watch<View>(get: (id: string) => Promise<View>, hasEnded: (view: View) => boolean) {
      // Those that nobody holds any more are let go of.
      const all = new Map<string, WeakRef<Watching<View>>>();
      enders.push(() => {
        for (const each of all.values()) each.deref()?.again();
      });
      return (id: string) => {
        const found =
          all.get(id)?.deref() ??
          createWatched({ ...parts, look: () => get(id), hasEnded, over: () => over });
        all.set(id, new WeakRef(found));
        return found;
      };
    },
    end(error) {
      over = error;
      for (const each of enders) each();
    },
  };
}
