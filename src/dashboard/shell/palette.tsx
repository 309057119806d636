import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { api } from "../api.ts";
import { mountPath } from "../browser.ts";
import { visibleLine } from "../facts/visible.ts";
import { useHome, useLive, useSeesAll } from "../live.ts";
import { placesFor } from "./places.ts";

type Choice = {
  readonly key: string;
  readonly text: string;
  readonly kind: string;
  readonly go: () => void;
};

const maxChoices = 12;
// As ids of tasks, runs, sessions and pods are.
const idLike = /^[0-9a-f]{8}-[0-9a-f-]{4,40}$/i;

/** Finds a page, a task's name or an id, from the keyboard alone. */
export function Palette({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const listId = useId();
  const seesAll = useSeesAll();
  const choices = useChoices(text.trim());
  const at = Math.min(active, choices.length - 1);

  useEffect(() => {
    dialog.current?.showModal();
  }, []);

  const choose = (choice: Choice | undefined) => {
    if (!choice) return;
    dialog.current?.close();
    choice.go();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    if (step !== undefined && choices.length > 0)
      setActive((at + step + choices.length) % choices.length);
    else if (event.key === "Enter") choose(choices[at]);
    else return;
    event.preventDefault();
  };

  return (
    <dialog ref={dialog} className="palette" aria-label="Find" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        aria-label="Find a page, a task's name or an id"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={at < 0 ? undefined : `${listId}-${at}`}
        aria-autocomplete="list"
        placeholder="A page, a task's name, or an id"
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setActive(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul role="listbox" id={listId} aria-label="Found">
        {choices.map((choice, index) => (
          <li
            key={choice.key}
            id={`${listId}-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => choose(choice)}
            onMouseMove={() => setActive(index)}
          >
            <span>{visibleLine(choice.text, 80)}</span>
            <span className="soft">{choice.kind}</span>
          </li>
        ))}
      </ul>
      {choices.length === 0 && (
        <p className="palette-none" role="status">
          Nothing has this name. A whole id opens its{" "}
          {seesAll ? "task, run, session or pod" : "task, run or session"}.
        </p>
      )}
    </dialog>
  );
}

function useChoices(text: string): Choice[] {
  const navigate = useNavigate();
  const { links, caller } = useHome();
  const seesAll = useSeesAll();
  const depth = useLive(["depth"], api.depth, { isOff: !seesAll });
  const wanted = text.toLowerCase();
  const fits = (name: string) => name.toLowerCase().includes(wanted);
  // An id says what it is of as little as a person remembers it.
  const kinds = {
    task: () => navigate({ to: "/tasks/$taskId", params: { taskId: text } }),
    run: () => navigate({ to: "/runs/$runId", params: { runId: text } }),
    session: () => navigate({ to: "/sessions/$sessionId", params: { sessionId: text } }),
    // Pods are of all tenants.
    ...(seesAll && { pod: () => navigate({ to: "/pods", search: { find: text } }) }),
  };
  const byId: Choice[] = idLike.test(text)
    ? Object.entries(kinds).map(([kind, go]) => ({
        key: `id of a ${kind}`,
        text,
        kind: `open this ${kind}`,
        go: () => void go(),
      }))
    : [];
  const pages = placesFor(caller)
    .filter((place) => fits(place.name))
    .map(({ to, name }) => ({
      key: to,
      text: name,
      kind: "page",
      go: () => void navigate({ to }),
    }));
  const names = Object.keys(depth.data ?? {})
    .filter((name) => wanted !== "" && fits(name))
    .map((name) => ({
      key: `name ${name}`,
      text: name,
      kind: "tasks of this name",
      go: () => void navigate({ to: "/tasks", search: { name } }),
    }));
  const others = Object.entries(links)
    .filter(([name, path]) => path.endsWith("/") && wanted !== "" && fits(name))
    .map(([name, path]) => ({
      key: `link ${name}`,
      text: name,
      kind: "page of this server",
      go: () => globalThis.location.assign(mountPath + path.slice(1)),
    }));
  return [...byId, ...pages, ...names, ...others].slice(0, maxChoices);
}
