import type { Client } from "flotilla/client";
import { useClient } from "flotilla/react";
import { useEffect, useId, useRef, useState } from "react";
import { whenOf } from "./lib/notes.ts";
import { remindTimes } from "./lib/remind-times.ts";
import { useOfSession } from "./lib/use-session.ts";

type Wakes = Awaited<ReturnType<Client["sessions"]["wakes"]>>;

/** What the agent is to be asked later: it is asked then, whether or not anybody has the page open. */
export function Reminders({ chatId }: { chatId: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button
        className="icon"
        aria-label="Reminders"
        onClick={() => {
          setOpen(true);
          dialog.current?.showModal();
        }}
      >
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <circle cx="12" cy="13" r="7" />
          <path d="M12 9v4l2.5 2M4.5 5.5l3-2.5M19.5 5.5l-3-2.5" />
        </svg>
      </button>
      <dialog
        ref={dialog}
        className="reminders"
        aria-label="Reminders"
        onClose={() => setOpen(false)}
      >
        {isOpen && <Open chatId={chatId} onDone={() => dialog.current?.close()} />}
      </dialog>
    </>
  );
}

function Open({ chatId, onDone }: { chatId: string; onDone: () => void }) {
  const { sessions: calls } = useClient();
  const { wakes, failure, attempt } = useWakes(chatId);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const id = useId();
  const set = () => {
    const { wake } = remindTimes[at]!;
    // Of this page and this moment, so that none takes the place of another.
    const key = `reminder-${Date.now().toString(36)}`;
    attempt(async () => {
      await calls.wake(chatId, { key, ...wake(new Date()), message: text.trim() });
      setText("");
    });
  };
  return (
    <>
      {wakes.length > 0 && (
        <ul aria-label="Set">
          {wakes.map(({ key, preview, atMs, cron }) => (
            <li key={key}>
              <span>{preview ?? "(no message)"}</span>
              <span className="mark">
                {cron && "again and again, next "}
                {timeOf(atMs)}
              </span>
              <button
                type="button"
                className="quiet"
                aria-label={`Cancel ${preview ?? key}`}
                onClick={() => attempt(() => calls.cancelWake(chatId, key))}
              >
                Cancel
              </button>
            </li>
          ))}
        </ul>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          set();
        }}
      >
        <label htmlFor={`${id}-text`}>Ask the agent</label>
        <input
          id={`${id}-text`}
          value={text}
          maxLength={1_000}
          autoComplete="off"
          autoFocus
          onChange={(event) => setText(event.target.value)}
        />
        <label htmlFor={`${id}-at`}>When</label>
        <select id={`${id}-at`} value={at} onChange={({ target }) => setAt(Number(target.value))}>
          {remindTimes.map(({ name }, place) => (
            <option key={name} value={place}>
              {name}
            </option>
          ))}
        </select>
        {failure && (
          <p className="wrong" role="alert">
            {failure}
          </p>
        )}
        <footer>
          <button className="small" disabled={text.trim() === ""}>
            Remind me
          </button>
          <button type="button" className="small" onClick={onDone}>
            Done
          </button>
        </footer>
      </form>
    </>
  );
}

/** The wakes that are set. Each that is set, cancelled or fires is an entry, so they are read again with those. */
function useWakes(chatId: string) {
  const { sessions: calls } = useClient();
  const lastSeq = useOfSession(chatId, (snapshot) => snapshot.lastSeq);
  const [wakes, setWakes] = useState<Wakes>([]);
  const [failure, setFailure] = useState("");
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    let isLeft = false;
    calls.wakes(chatId).then(
      (found) => !isLeft && setWakes(found),
      (error: unknown) => !isLeft && setFailure(textOf(error)),
    );
    return () => {
      isLeft = true;
    };
  }, [calls, chatId, lastSeq, changes]);
  const attempt = (act: () => Promise<unknown>) => {
    setFailure("");
    act()
      .catch((error: unknown) => setFailure(textOf(error)))
      .finally(() => setChanges((count) => count + 1));
  };
  return { wakes, failure, attempt };
}

const textOf = (error: unknown) => (error instanceof Error ? error.message : "It can’t be done.");

/** "10:24", or with its day where that isn't today. */
function timeOf(atMs: number): string {
  const time = whenOf(atMs, new Date(atMs));
  const when = whenOf(atMs);
  return when === time ? time : `${when}, ${time}`;
}
