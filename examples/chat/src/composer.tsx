import { type KeyboardEvent, useEffect, useRef, useState } from "react";

type ComposerProps = {
  isAnswering: boolean;
  /** The server takes nothing from here. */
  isRefused: boolean;
  onType: (isTyping: boolean) => void;
  /** Rejects where it is known that it wasn't sent. */
  onSend: (text: string, files?: FileList) => Promise<void>;
  onStop: () => void;
};

/** So many in one message: each is read into memory by the page. */
const maxFiles = 10;

/** What `useChat` takes. */
function listOf(files: readonly File[]): FileList {
  const list = new DataTransfer();
  for (const file of files) list.items.add(file);
  return list.files;
}

/**
 * Where one writes. Enter sends, Shift+Enter begins a line. While an answer comes, one can stop it, or say
 * more: the agent hears it while it works, if it is one that does, or answers it next.
 */
export function Composer({ isAnswering, isRefused, onType, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<readonly File[]>([]);
  const [isSending, setSending] = useState(false);
  const [failure, setFailure] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const isEmpty = text.trim() === "" && files.length === 0;
  const canSend = !isEmpty && !isSending && !isRefused;

  useEffect(() => {
    // On a phone this would bring up the keyboard before anybody wanted to write.
    if (matchMedia("(hover: hover)").matches) box.current?.focus();
  }, []);

  const send = () => {
    if (!canSend) return;
    const sent = { text, files };
    setText("");
    setFiles([]);
    setFailure("");
    setSending(true);
    box.current?.focus();
    onSend(text.trim(), files.length > 0 ? listOf(files) : undefined)
      .catch((error: unknown) => {
        setFailure(error instanceof Error ? error.message : "It wasn’t sent.");
        // What was written meanwhile stays behind it.
        setText((now) => (now === "" ? sent.text : `${sent.text}\n${now}`));
        setFiles((now) => [...sent.files, ...now].slice(0, maxFiles));
      })
      .finally(() => setSending(false));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // While letters are being put together, Enter belongs to whatever does that.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  const add = (more: FileList | null) => {
    if (more && more.length > 0) setFiles((before) => [...before, ...more].slice(0, maxFiles));
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {failure && (
        <p className="unsent" role="alert">
          Not sent: {failure}
        </p>
      )}
      {files.length > 0 && (
        <ul className="attached" aria-label="Attached">
          {files.map((file, at) => (
            <li key={at}>
              {file.name}
              <button
                type="button"
                className="quiet"
                aria-label={`Remove ${file.name}`}
                onClick={() => setFiles(files.filter((each) => each !== file))}
              >
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
      <button
        type="button"
        className="icon"
        aria-label="Attach files"
        disabled={isRefused}
        onClick={() => picker.current?.click()}
      >
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path d="M8 12.5l5.5-5.5a3 3 0 0 1 4.2 4.2l-7.4 7.4a5 5 0 0 1-7-7l7-7" />
        </svg>
      </button>
      <input
        ref={picker}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          add(event.target.files);
          // The same file may be chosen again.
          event.target.value = "";
        }}
      />
      <textarea
        id="composer"
        ref={box}
        rows={1}
        value={text}
        placeholder={isAnswering ? "Say more while it answers" : "Write a message"}
        aria-label="Message"
        maxLength={20_000}
        enterKeyHint="send"
        disabled={isRefused}
        onChange={(event) => {
          setText(event.target.value);
          onType(event.target.value.trim() !== "");
        }}
        onKeyDown={onKeyDown}
        onPaste={(event) => add(event.clipboardData.files)}
      />
      {isAnswering && (
        <button type="button" className="round stop" aria-label="Stop" onClick={onStop}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <rect x="7" y="7" width="10" height="10" rx="2" />
          </svg>
        </button>
      )}
      {(!isAnswering || !isEmpty) && (
        <button className="round" aria-label="Send" disabled={!canSend}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <path d="M12 19V5M6 11l6-6 6 6" />
          </svg>
        </button>
      )}
    </form>
  );
}
