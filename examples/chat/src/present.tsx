import type { Person } from "flotilla/client";

type PresentProps = { people: readonly Person[]; user: string };

/** Who else has this conversation open. */
export function AlsoHere({ people, user }: PresentProps) {
  const others = people.filter((person) => person.user !== user).map((person) => person.user);
  return others.length === 0 ? null : <p className="also-here">Also here: {namesOf(others)}</p>;
}

/** Who else types. A line of its own height, so that nothing moves when it comes and goes. */
export function Typing({ people, user }: PresentProps) {
  const typing = people.filter((person) => person.typing && person.user !== user);
  const names = namesOf(typing.map((person) => person.user));
  return (
    <p className="typing" aria-live="polite">
      {typing.length > 0 && `${names} ${typing.length > 1 ? "are" : "is"} typing…`}
    </p>
  );
}

function namesOf(users: readonly string[]): string {
  const [first = "", second = ""] = users;
  if (users.length > 2) return `${first}, ${second} and ${users.length - 2} more`;
  return users.join(" and ");
}
