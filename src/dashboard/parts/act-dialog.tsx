import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { errorSentence, newAct } from "../api.ts";
import { visibleLine } from "../facts/visible.ts";
import { announce, readAgain } from "../live.ts";
import { focusTitle } from "./states.tsx";

/** An act that a person is about to confirm. */
export type PlannedAct = {
  readonly title: string;
  /** What it does, and to what. */
  readonly explanation: ReactNode;
  /** The word on the button. */
  readonly verb: string;
  readonly isHarmful?: boolean;
  /** A choice that the act has. */
  readonly option?: string;
  /** A choice among several, of which the first holds unless another is chosen. */
  readonly choice?: {
    readonly label: string;
    readonly values: readonly (readonly [string, string])[];
  };
  /** Does it, and says what has been done. */
  perform(act: {
    readonly actId: string;
    readonly isChosen: boolean;
    readonly chosen: string;
  }): Promise<string>;
};

/** Asks before an act, and stays until it is answered. Trying again sends the same act. */
export function ActDialog({ plan, onClose }: { plan: PlannedAct; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [{ actId }] = useState(newAct);
  const [isBusy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState<string>();
  const [isChosen, setChosen] = useState(false);
  const [chosen, setValue] = useState(plan.choice?.values[0]?.[0] ?? "");
  const titleId = useId();

  useEffect(() => {
    dialog.current?.showModal();
  }, []);

  const perform = async () => {
    setBusy(true);
    setTrouble(undefined);
    try {
      const done = await plan.perform({ actId, isChosen, chosen });
      announce(done);
      readAgain();
      if (!dialog.current) return;
      dialog.current.close();
      focusTitle();
    } catch (error) {
      const sentence = visibleLine(errorSentence(error), 1_000);
      // A person who has closed the dialog meanwhile is told all the same.
      if (dialog.current) setTrouble(sentence);
      else announce(sentence);
      readAgain();
    } finally {
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isBusy) void perform();
  };

  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={titleId} onClose={onClose}>
      <form onSubmit={submit}>
        <h2 id={titleId}>{plan.title}</h2>
        <div className="dialog-body">{plan.explanation}</div>
        {plan.option !== undefined && (
          <label className="check">
            <input
              type="checkbox"
              checked={isChosen}
              onChange={(event) => setChosen(event.target.checked)}
            />
            {plan.option}
          </label>
        )}
        {plan.choice && (
          <label className="check">
            {plan.choice.label}
            <select value={chosen} onChange={(event) => setValue(event.target.value)}>
              {plan.choice.values.map(([value, text]) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          </label>
        )}
        {trouble !== undefined && (
          <p className="trouble" role="alert">
            {trouble}
          </p>
        )}
        <div className="dialog-buttons">
          <button type="button" className="button" onClick={() => dialog.current?.close()}>
            Keep as it is
          </button>
          <button
            type="submit"
            className={plan.isHarmful ? "button harmful" : "button primary"}
            disabled={isBusy}
          >
            {isBusy ? "Under way …" : plan.verb}
          </button>
        </div>
      </form>
    </dialog>
  );
}
