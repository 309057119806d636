import { useId, useState } from "react";
import { typedPayload } from "../facts/payload.ts";

/** What a person types into the fields of a signal, until it is sent. */
export type SignalDraft = { name: string; payload: string };

export function newSignalDraft(name: string): SignalDraft {
  return { name, payload: "" };
}

/** The signal, or what is wrong with it. */
export function typedSignal({
  name,
  payload,
}: SignalDraft):
  | { readonly name: string; readonly payload: unknown }
  | { readonly trouble: string } {
  if (!/^[A-Za-z][\w.:-]{0,99}$/.test(name.trim()))
    return {
      trouble: "A signal's name is 1 to 100 letters, digits and _ . : -, and begins with a letter.",
    };
  const typed = typedPayload(payload);
  return "trouble" in typed
    ? typed
    : { name: name.trim(), payload: JSON.parse(typed.json) as unknown };
}

/** The fields of a signal, within a dialog that sends what they hold. */
export function SignalFields({ draft, names }: { draft: SignalDraft; names: readonly string[] }) {
  const [name, setName] = useState(draft.name);
  const [payload, setPayload] = useState(draft.payload);
  const namesId = useId();
  const typed = typedPayload(payload);
  const trouble = "trouble" in typed ? typed.trouble : undefined;
  const troubleId = useId();
  return (
    <div className="fields">
      <label>
        Signal
        <input
          type="text"
          list={namesId}
          value={name}
          maxLength={100}
          autoComplete="off"
          spellCheck={false}
          required
          onChange={(event) => {
            draft.name = event.target.value;
            setName(event.target.value);
          }}
        />
      </label>
      <datalist id={namesId}>
        {names.map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
      <label>
        Payload, as JSON
        <textarea
          rows={5}
          value={payload}
          spellCheck={false}
          placeholder='{ "by": "ada" }'
          aria-invalid={trouble !== undefined}
          aria-describedby={trouble === undefined ? undefined : troubleId}
          onChange={(event) => {
            draft.payload = event.target.value;
            setPayload(event.target.value);
          }}
        />
      </label>
      {trouble !== undefined && (
        <p id={troubleId} className="wrong">
          {trouble}
        </p>
      )}
    </div>
  );
}
