import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { copyKey } from "../../../protocol/copies.ts";
import { errorSentence, type NewAct, newAct, type TaskFacts } from "../../api.ts";
import { tasksApi } from "../../asks/tasks.ts";
import { writeExact } from "../../facts/exact-json.ts";
import { checkPayload } from "../../facts/payload.ts";
import { visibleLine } from "../../facts/visible.ts";
import { announce, readAgain } from "../../live.ts";
import { ShownText } from "../../parts/text.tsx";

/** Runs a copy of a task, with another payload where that is wanted. The server checks it by its schema. */
export function CopyDialog({ task, onClose }: { task: TaskFacts; onClose: () => void }) {
  const { taskId, name, tenant, priority, maxAttempts } = task;
  const navigate = useNavigate();
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  /** What was sent last, and as which act: the same once, however often it is sent. */
  const sent = useRef<{ readonly text: string; readonly act: NewAct }>(undefined);
  const [text, setText] = useState(() => writeExact(task.payload));
  const [isBusy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState<string>();
  const titleId = useId();
  const troubleId = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);

  const refuse = (sentence: string) => {
    const shown = visibleLine(sentence, 1_000);
    // A person who has closed the dialog meanwhile is told all the same.
    if (!dialog.current) return announce(shown);
    setTrouble(shown);
    field.current?.focus();
  };
  const run = async () => {
    const wrong = checkPayload(text);
    if (wrong !== undefined) return refuse(wrong);
    setBusy(true);
    setTrouble(undefined);
    if (sent.current?.text !== text) sent.current = { text, act: newAct() };
    const { act } = sent.current;
    try {
      const options = {
        tenant,
        priority,
        ...(maxAttempts !== null && { attempts: maxAttempts }),
        // It also tells what it is a copy of.
        key: copyKey(taskId, act.actId),
      };
      const stored = await tasksApi.enqueue({ name, input: text, options }, act);
      announce("The copy is stored.");
      dialog.current?.close();
      readAgain();
      await navigate({ to: "/tasks/$taskId", params: { taskId: stored.taskId } });
    } catch (error) {
      refuse(errorSentence(error));
    } finally {
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isBusy) void run();
  };

  return (
    <dialog ref={dialog} className="dialog wide-dialog" aria-labelledby={titleId} onClose={onClose}>
      <form onSubmit={submit}>
        <h2 id={titleId}>Run a copy</h2>
        <p className="dialog-body">
          A new task{" "}
          <strong>
            <ShownText text={name} />
          </strong>{" "}
          for the same tenant. The original stays as it is.
        </p>
        <label className="line-field">
          Payload, as JSON
          <textarea
            ref={field}
            rows={12}
            spellCheck={false}
            autoComplete="off"
            value={text}
            aria-invalid={trouble !== undefined}
            aria-describedby={trouble === undefined ? undefined : troubleId}
            onChange={(event) => {
              setText(event.target.value);
              setTrouble(undefined);
            }}
          />
        </label>
        {trouble !== undefined && (
          <p id={troubleId} className="trouble" role="alert">
            <ShownText text={trouble} />
          </p>
        )}
        <div className="dialog-buttons">
          <button type="button" className="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button type="submit" className="button primary" disabled={isBusy}>
            {isBusy ? "Under way …" : "Run the copy"}
          </button>
        </div>
      </form>
    </dialog>
  );
}
