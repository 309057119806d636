const suggestions = [
  ["Why does it survive?", "it thinks before it answers"],
  ["Do some work for me", "a task that shows how far it is"],
  ["Order a coffee", "a tool that needs your word"],
  ["What time is it?", "a tool that your browser runs"],
  ["Tell me a long story", "to stop, reload or watch in two tabs"],
  ["Fail, please", "an error, and another try"],
] as const;

/** What a chat begins with: a few things to ask that show what there is to see. */
export function Welcome({ onAsk }: { onAsk: (text: string) => void }) {
  return (
    <section className="welcome" aria-labelledby="welcome">
      <h2 id="welcome">Ask the guide</h2>
      <p>
        Then reload, open a second tab, pull the plug, or kill the server in the middle of an
        answer: it goes on.
      </p>
      <ul>
        {suggestions.map(([text, what]) => (
          <li key={text}>
            <button onClick={() => onAsk(text)}>
              <strong>{text}</strong>
              <span>{what}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
