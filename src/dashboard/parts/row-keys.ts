import { type RefObject, useEffect } from "react";

/** `j` and `k` move the focus from row to row of a list that is drawn whole. Rows are marked `data-row-link`. */
export function useListKeys(list: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const steps: Readonly<Record<string, number>> = { j: 1, k: -1 };
    const onKeyDown = (event: KeyboardEvent) => {
      const step = steps[event.key];
      const active = document.activeElement;
      const isTaken = event.ctrlKey || event.metaKey || event.altKey;
      if (step === undefined || isTaken || document.querySelector("dialog[open]")) return;
      if (active?.matches("input, select, textarea")) return;
      const rows = [...(list.current?.querySelectorAll<HTMLElement>("[data-row-link]") ?? [])];
      const at = rows.findIndex((row) => row === active || row.closest("li, tr")?.contains(active));
      if (at < 0 && step < 0) return;
      rows[Math.min(rows.length - 1, at + step)]?.focus();
      event.preventDefault();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, [list]);
}
