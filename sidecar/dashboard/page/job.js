// Descriptions of a job, and the actions for it.

import { ask, request } from './acts.js';
import { duration, moment, number } from './draw.js';

export const KINDS = {
  pending: 'prequeue',
  called: 'open',
  processing: 'live',
  completed: 'done',
  failed: 'lost',
  cancelled: 'over',
  expired: 'over',
};

export const address = id => `/v1/jobs/${encodeURIComponent(id)}`;
export const time = iso => (iso ? moment(Date.parse(iso)) : '–');
export const ENDED = ['completed', 'failed', 'cancelled', 'expired'];
export const mayRetry = ({ state }) => ENDED.includes(state);
// A job that was completed by a response other than a 2xx: its target has a fail_on of its own, or
// an earlier version completed the job.
const isOtherAnswer = ({ state, status }) =>
  state === 'completed' && status != null && (status < 200 || status > 299);
export const kindOf = job => (isOtherAnswer(job) ? 'closed' : KINDS[job.state]);

export function mayCancel({ state, kind }, { abort }) {
  return (
    state === 'pending' ||
    state === 'called' ||
    (state === 'processing' && kind === 'offline' && abort)
  );
}

// Describes the place in the queue, if the place is known, or a response that is no success.
export function place(job) {
  if (isOtherAnswer(job)) return `the target says ${job.status}`;
  const {
    position,
    wait_seconds: seconds,
    run_at: runs,
    retry_at: again,
  } = job;
  if (runs && Date.parse(runs) > Date.now()) return `at ${time(runs)}`;
  if (again && Date.parse(again) > Date.now()) return `again at ${time(again)}`;
  return position == null
    ? ''
    : `place ${number(position)}${seconds == null ? '' : `, ${duration(seconds)}`}`;
}

// Asks for confirmation, acts, and returns the result, or null if the operator has cancelled.
export async function retry({ id, method, path, kind, result }) {
  if (
    !(await ask({
      title: 'Try this job again?',
      go: 'Try again',
      stay: 'Leave it',
      text: `${id} waits again, at the end of the queue${kind === 'offline' ? `, and ${method} ${path || 'its target'} is called once more` : ''}.${result ? ' The answer that is kept is lost.' : ''}`,
    }))
  )
    return null;
  const { position } = await request('POST', `${address(id)}/retry`);
  return `${id} waits again${position == null ? '' : `, at place ${number(position)}`}.`;
}

export async function cancel({ id, state }) {
  const isOn = state === 'processing';
  if (
    !(await ask({
      title: 'Cancel this job?',
      go: isOn ? 'Cut it off' : 'Cancel the job',
      stay: isOn ? 'Let it go on' : 'Keep it',
      danger: true,
      text: isOn
        ? `The call of ${id} is cut off. What it did at its target stays done.`
        : `${id} loses its place, and is not called.`,
    }))
  )
    return null;
  const { aborting } = await request('DELETE', address(id));
  return aborting ? `${id} is being cut off.` : `${id} is cancelled.`;
}
