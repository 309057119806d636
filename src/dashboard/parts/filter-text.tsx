/** A field of a filter bar that takes text, which holds once the field is left or sent. */
export function FilterText({
  label,
  value,
  onChange,
  onApply,
  isFirst = false,
}: {
  label: string;
  value: string;
  onChange: (text: string) => void;
  onApply: () => void;
  /** The key `/` leads here. */
  isFirst?: boolean;
}) {
  return (
    <input
      type="text"
      aria-label={label}
      placeholder={label}
      autoComplete="off"
      spellCheck={false}
      maxLength={500}
      value={value}
      onChange={(event) => onChange(event.target.value)}
      onBlur={onApply}
      {...(isFirst && { "data-filter": "" })}
    />
  );
}
