import { type KeyboardEvent, useEffect, useRef, useState } from "react";

type ComposerProps = {
  isAnswering: boolean;
  /** The server takes nothing from here. */
  isRefused: boolean;
  onSend: (text: string) => void;
  onStop: () => void;
};

/** Where one writes. Enter sends, Shift+Enter begins a line; while an answer comes, one can stop it. */
export function Composer({ isAnswering, isRefused, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const canSend = text.trim() !== "" && !isAnswering && !isRefused;

  useEffect(() => {
    // On a phone this would bring up the keyboard before anybody wanted to write.
    if (matchMedia("(hover: hover)").matches) box.current?.focus();
  }, []);

  const send = () => {
    if (!canSend) return;
    onSend(text.trim());
    setText("");
    box.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // While letters are being put together, Enter belongs to whatever does that.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        id="composer"
        ref={box}
        rows={1}
        value={text}
        placeholder="Write a message"
        aria-label="Message"
        maxLength={20_000}
        enterKeyHint="send"
        disabled={isRefused}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {isAnswering ? (
        <button type="button" className="round stop" aria-label="Stop" onClick={onStop}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <rect x="7" y="7" width="10" height="10" rx="2" />
          </svg>
        </button>
      ) : (
        <button className="round" aria-label="Send" disabled={!canSend}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <path d="M12 19V5M6 11l6-6 6 6" />
          </svg>
        </button>
      )}
    </form>
  );
}
