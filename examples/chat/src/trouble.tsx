/** What went wrong, in words, and a way to try again. */
export function Trouble({ error, onAgain }: { error: Error; onAgain: () => void }) {
  return (
    <div className="trouble" role="alert">
      <span>{error.message || "Something went wrong."}</span>
      <button className="small" onClick={onAgain}>
        Try again
      </button>
    </div>
  );
}
