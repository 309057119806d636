import { useRef, useState } from "react";
import { type NewAct, newAct } from "../../api.ts";
import { throttleAsks } from "../../asks/throttles.ts";
import { exactCount } from "../../facts/spans.ts";
import {
  limitIn,
  maxPinned,
  type ThrottleAt,
  type ThrottleFacts,
} from "../../facts/throttles/throttle.ts";
import { ActDialog } from "../../parts/act-dialog.tsx";

/** Asks for a limit, and holds a throttle there. */
export function PinDialog({
  at,
  throttle: { bound, pinned },
  onClose,
}: {
  at: ThrottleAt;
  throttle: Pick<ThrottleFacts, "bound" | "pinned">;
  onClose: () => void;
}) {
  const [text, setText] = useState(String(pinned ?? bound));
  const [wasRefused, setRefused] = useState(false);
  // Another limit is another act: the same id would do the first one again.
  const sent = useRef<{ readonly limit: number; readonly act: NewAct }>(undefined);
  const limit = limitIn(text);
  const advice = `A whole number from 0 to ${exactCount(maxPinned)}. 0 stops all calls.`;
  return (
    <ActDialog
      onClose={onClose}
      plan={{
        title: "Pin this limit?",
        verb: "Pin",
        isHarmful: limit === 0,
        explanation: (
          <>
            <p>
              All pods together make at most so many calls at once, within a second. Nothing is
              learned until it is unpinned.
            </p>
            <label className="limit-field">
              Limit
              <input
                type="text"
                inputMode="numeric"
                autoComplete="off"
                maxLength={20}
                value={text}
                aria-invalid={wasRefused && limit === undefined}
                onChange={(event) => setText(event.target.value)}
              />
              <span className="soft">{advice}</span>
            </label>
          </>
        ),
        async perform() {
          setRefused(limit === undefined);
          if (limit === undefined) throw new Error(advice);
          if (sent.current?.limit !== limit) sent.current = { limit, act: newAct() };
          await throttleAsks.pin(at, limit, sent.current.act);
          return `The limit is pinned at ${exactCount(limit)}.`;
        },
      }}
    />
  );
}
