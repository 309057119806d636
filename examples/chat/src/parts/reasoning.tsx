/** What an agent thought before it spoke: there while it does, folded away afterwards. */
export function Reasoning({ text, isOpen }: { text: string; isOpen: boolean }) {
  if (text === "") return null;
  return (
    <details className="reasoning" open={isOpen}>
      <summary>{isOpen ? "Thinking…" : "Thought about it"}</summary>
      <p>{text}</p>
    </details>
  );
}
