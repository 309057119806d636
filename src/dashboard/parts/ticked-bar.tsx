import { useEffect, useState } from "react";
import { bulksOnTicked, type BulkNoun, maxTicked, type TickedRow } from "../facts/bulk.ts";
import { counted, exactCount } from "../facts/spans.ts";
import { useMay } from "../live.ts";
import { BulkDialog, type BulkTarget } from "./bulk-dialog.tsx";

export type Ticks = {
  has(id: string): boolean;
  toggle(id: string): void;
  set(ids: readonly string[]): void;
};

/** The rows that a person has ticked. With another filter there are none. */
export function useTicks(address: string): Ticks {
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => setTicked(new Set()), [address]);
  return {
    has: (id) => ticked.has(id),
    toggle(id) {
      const next = new Set(ticked);
      if (!next.delete(id)) next.add(id);
      setTicked(next);
    },
    set: (ids) => setTicked(new Set(ids)),
  };
}

type TickedBarProps = {
  noun: BulkNoun;
  rows: readonly TickedRow[];
  ticks: Ticks;
  /** The flow of all rows, where they are runs of one. */
  flow?: string;
  versions?: readonly number[];
};

/** Acts on the ticked rows, all by one act. */
export function TickedBar({ noun, rows, ticks, flow, versions }: TickedBarProps) {
  const mayAct = useMay("fleet:operate");
  const [target, setTarget] = useState<BulkTarget>();
  const ticked = rows.filter(({ id }) => ticks.has(id));
  if (!mayAct || (ticked.length === 0 && !target)) return null;
  const isTooMany = ticked.length > maxTicked;
  const choose = () =>
    setTarget({
      noun,
      filter: {
        ids: ticked.map(({ id }) => id),
        ...(flow !== undefined && { name: flow }),
      },
      acts: bulksOnTicked(ticked),
      ...(versions && { versions }),
    });
  return (
    <>
      {ticked.length > 0 && (
        <div className="chosen" role="region" aria-label={`Ticked ${noun}s`}>
          <span>{counted(ticked.length, noun)} ticked</span>
          {isTooMany ? (
            <span className="soft">
              At most {exactCount(maxTicked)} at once: untick some, or filter for what is meant and
              act on all that match.
            </span>
          ) : (
            <button type="button" className="button small" onClick={choose}>
              Act on {exactCount(ticked.length)} …
            </button>
          )}
          <button type="button" className="inline" onClick={() => ticks.set([])}>
            Untick all
          </button>
        </div>
      )}
      {target && (
        <BulkDialog
          target={target}
          onBegun={() => ticks.set([])}
          onClose={() => setTarget(undefined)}
        />
      )}
    </>
  );
}
