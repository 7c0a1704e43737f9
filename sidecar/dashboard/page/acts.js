// What the controls do: calls to the replica, and the questions before them.

export const session = { csrf: '', history: false, jobs: false };

// A call about rooms.
export const call = (method, path, body) => request(method, `/admin/rooms${path}`, body);

// The call's document. Throws an Error with the problem's text, its title, and its status if there
// is one.
export async function request(method, address, body) {
	let reply, document;
	try {
		reply = await fetch(address, {
			method, cache: 'no-store', signal: AbortSignal.timeout(10000),
			headers: { 'X-Waitroom-CSRF': session.csrf, 'Content-Type': 'application/json' },
			body: body === undefined ? undefined : JSON.stringify(body)
		});
		document = await reply.json();
	} catch (error) {
		const title = 'The replica does not answer';
		throw Object.assign(new Error(`${title}.${method === 'GET' ? '' : ' It is not known whether this was done.'}`), { title });
	}
	if (reply.status === 401) location.reload(); // logged out meanwhile
	if (reply.ok) return document;
	const lines = document.errors || [document.detail];
	const text = [document.title, ...lines].filter(Boolean).join(': ');
	throw Object.assign(new Error(text), { status: reply.status, title: document.title });
}

// Runs `act` and says next to the control what came of it.
export async function tell(output, act) {
	say(output, '', '');
	const slow = setTimeout(() => { if (!dialog.open) say(output, 'wait', 'Asking …'); }, 500);
	try {
		const said = await act();
		clearTimeout(slow);
		if (said == null) say(output, '', ''); // the question was answered with no
		else say(output, 'done', said);
	} catch (error) {
		clearTimeout(slow);
		say(output, 'wrong', error.message);
	}
}

function say(output, kind, text) {
	const mark = { done: '✓ ', wrong: '✗ Not done: ' }[kind] || '';
	output.className = kind;
	output.textContent = mark + text;
}

const dialog = document.getElementById('ask');
const form = dialog.querySelector('form');
const [no, yes] = form.querySelectorAll('button');
const label = document.getElementById('ask-label');
const input = label.querySelector('input');
const wrong = document.getElementById('ask-wrong');
let question, settle;

// Asks in a dialog: `go` is the button's text; with `label` something is to be typed, which `check`
// finds fault with or returns '' for. Resolves to what was typed (true without a label), or null.
export function ask(asked) {
	question = asked;
	document.getElementById('ask-title').textContent = asked.title;
	document.getElementById('ask-text').textContent = asked.text;
	yes.textContent = asked.go;
	yes.classList.toggle('danger', Boolean(asked.danger));
	label.hidden = !asked.label;
	label.querySelector('span').textContent = asked.label || '';
	input.value = '';
	wrong.textContent = '';
	dialog.returnValue = '';
	dialog.showModal();
	(asked.label ? input : no).focus();
	return new Promise(resolve => { settle = resolve; });
}

no.addEventListener('click', () => dialog.close());
form.addEventListener('submit', event => {
	event.preventDefault();
	const typed = input.value.trim();
	wrong.textContent = question.label ? question.check(typed) : '';
	if (wrong.textContent) input.focus();
	else dialog.close('yes');
});
dialog.addEventListener('close', () => {
	const isYes = dialog.returnValue === 'yes';
	settle(isYes ? question.label ? input.value.trim() : true : null);
});
